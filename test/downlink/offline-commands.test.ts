/** Commands that wait for devices over `kill -9`. */
import t from 'tap';
import { proveCommands } from './long/command-proof.js';

t.test('40 offline devices get their commands after kill -9, once or with another attempt, in order', (t) =>
  proveCommands(t, 40),
);
