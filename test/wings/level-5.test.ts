/** MQTT 5. */
import '../broker/level5/bounds.test.ts';
import '../broker/level5/connect.test.ts';
import '../broker/level5/flow.test.ts';
import '../broker/level5/messages.test.ts';
import '../broker/level5/programs.test.ts';
import '../broker/level5/reasons.test.ts';
import '../broker/level5/session.test.ts';
import '../broker/level5/shared.test.ts';
import '../broker/level5/subscriptions.test.ts';
import '../broker/level5/wills.test.ts';
