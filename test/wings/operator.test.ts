/** What an operator runs: installation, commands, cells. */
import '../operations/deploy.test.ts';
import '../operations/first-start.test.ts';
import '../operations/image.test.ts';
import '../operations/install.test.ts';
import '../commands/command-line.test.ts';
import '../commands/devices.test.ts';
import '../commands/login.test.ts';
import '../commands/enroll.test.ts';
import '../cells/commands.test.ts';
import '../cells/config.test.ts';
