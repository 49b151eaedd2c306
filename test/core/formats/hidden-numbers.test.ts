import { randomBytes } from 'node:crypto';
import { HiddenNumbers } from '../../../src/core/formats/hidden-numbers.ts';
import { part } from '../../support/part.ts';

const t = await part(import.meta);

t.test('numbers come back with the same key only, and a number and the next one have nothing in common', async (t) => {
  const numbers = new HiddenNumbers(randomBytes(32));
  const most = 2 ** 48 - 1;
  const pairs: Array<[number, number]> = [
    [0, 0],
    [1, 0],
    [0, 1],
    [123_456_789_012, 7],
    [most, most],
  ];
  for (const pair of pairs) {
    const text = numbers.hide(pair[0], pair[1]);
    t.match(text, /^[\w-]{32}$/);
    t.strictSame(numbers.read(text), pair);
    t.not(numbers.hide(pair[0], pair[1]), text, 'nobody sees that the numbers are still the same');
    t.equal(new HiddenNumbers(randomBytes(32)).read(text), undefined, 'another key');
  }
  const bytes = (text: string) => [...Buffer.from(text, 'base64url')];
  const [one, next] = [bytes(numbers.hide(1000, 5)), bytes(numbers.hide(1001, 5))];
  t.ok(one.filter((byte, place) => byte === next[place]).length < 6, 'no part says by how much it grew');
  for (const text of ['', 'x', '1-2', 'x'.repeat(22), 'x'.repeat(32), 'x'.repeat(44), `${'x'.repeat(31)}=`])
    t.equal(numbers.read(text), undefined, text);
});

t.end();
