/** What an operator runs: installation, commands, cells. */
import '../operations/deploy.test.ts';
import '../operations/first-start.test.ts';
import '../operations/image.test.ts';
import '../operations/install.test.ts';
import '../commands/command-line.test.ts';
import '../commands/cells/commands.test.ts';
import '../commands/cells/config.test.ts';
