/** Commands, firmware and rollouts. */
import '../downlink/backup.test.ts';
import '../downlink/client-certificates.test.ts';
import '../downlink/clients.test.ts';
import '../downlink/commands.test.ts';
import '../downlink/downloads.test.ts';
import '../downlink/hostile.test.ts';
import '../downlink/line.test.ts';
import '../downlink/mqtt.test.ts';
import '../downlink/packages.test.ts';
import '../downlink/rollouts.test.ts';
import '../downlink/unlisted-channels.test.ts';
