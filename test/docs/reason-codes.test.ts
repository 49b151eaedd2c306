/** Holds the reason codes of docs/mqtt.md against those that the broker sends. */
import { readFileSync } from 'node:fs';
import { connectReasons, ends } from '../../broker/reasons.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

/** Codes in the code: `mqtt5: 0x87`, `takenOver: 0x8e`, `quotaExceeded = 0x97`. */
function codesIn(file: string): string[] {
  const found = readFileSync(file, 'utf8').matchAll(/(?<=[:=] )0x[189][0-9a-f]\b/g);
  return [...found].map(([code]) => code);
}

t.test('the table of docs/mqtt.md has every reason code that the broker sends, and no other', async (t) => {
  const text = readFileSync('docs/mqtt.md', 'utf8');
  const [, table = ''] = /### Reason codes\n([\s\S]*?)\n## /.exec(text) ?? [];
  const rows = [...table.matchAll(/^\| (0x[^|]+) \|/gm)].flatMap(([, codes = '']) => codes.toLowerCase().split(', '));
  const files = [
    'broker/reasons.ts',
    'broker/packets/fields.ts',
    'broker/authenticate.ts',
    'broker/connections/sockets.ts',
  ];
  const sent = new Set(files.flatMap(codesIn));
  t.ok(sent.has(`0x${ends.takenOver.code.toString(16)}`), 'they are found');
  // Another level is answered in the form of level 4.
  sent.delete(`0x${connectReasons.level.mqtt5.toString(16)}`);
  t.strictSame([...new Set(rows)].sort(), [...sent].sort());
});

t.end();
