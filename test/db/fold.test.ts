import { fold } from '../../db/sqlite/fold.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test('every letter is the same in either case, and however it is composed', (t) => {
  const wrong: string[] = [];
  // Nothing behind the second plane has a case or is composed.
  for (let code = 0; code <= 0x2ffff; code += 1) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    const character = String.fromCodePoint(code);
    const folded = fold(character);
    const same = [character.toUpperCase(), character.toLowerCase(), character.normalize('NFD'), folded];
    if (folded === '' || same.some((one) => fold(one) !== folded)) wrong.push(code.toString(16));
  }
  t.same(wrong, []);
  t.end();
});

t.test('no character depends on its neighbours', (t) => {
  t.ok(fold('ΟΔΟΣΑ').includes(fold('οδος')), 'a sigma at the end is a sigma');
  t.equal(fold('Straße'), fold('STRASSE'));
  t.equal(fold('ÄÖé'), fold('a\u0308o\u0308E\u0301'));
  t.not(fold('é'), fold('e'), 'a diacritic counts');
  t.end();
});

t.end();
