import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Equipping } from '../../src/factory/provisioning/equipping.ts';
import { Sealing } from '../../src/identity/secrets/sealing.ts';
import { Secrets } from '../../src/identity/secrets/secrets.ts';
import { hashOfCode } from '../../src/registry/credentials/association-codes.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test('anyone who asks for secrets gets their own, also when what was asked later is answered first', async (t) => {
  const keys = join(temporaryDirectory(t), 'keys');
  const sealing = Sealing.open(keys);
  const equipping = new Equipping(keys);
  t.teardown(() => equipping.close());
  const secrets = new Secrets();

  const [large, small] = [randomUUID(), randomUUID()];
  const asked: Array<[string, number]> = [
    [large, 400],
    [small, 1],
    [large, 50],
  ];
  const answers = await Promise.all(asked.map(([accountId, count]) => equipping.equip(accountId, count)));
  for (const [n, [accountId, count]] of asked.entries()) {
    const equipment = answers[n] ?? [];
    t.equal(equipment.length, count);
    t.ok(equipment.every(({ code, codeHash }) => codeHash === hashOfCode(sealing, accountId, code)));
    const [{ secret, secretHash } = { secret: '', secretHash: '' }] = equipment;
    t.ok(await secrets.verify(accountId, secretHash, secret, { accountId, address: '' }));
  }
  const all = answers.flat();
  for (const name of ['secret', 'code', 'secretHash', 'codeHash'] as const)
    t.equal(new Set(all.map((one) => one[name])).size, 451, `each ${name} is made once`);
  t.strictSame(await equipping.equip(small, 0), []);
});

t.test('after its end no thread is started again', async (t) => {
  const equipping = new Equipping(join(temporaryDirectory(t), 'keys'));
  t.equal((await equipping.equip(randomUUID(), 1)).length, 1);
  await equipping.close();
  await t.rejects(equipping.equip(randomUUID(), 1), { message: /is closed/ });
});

t.test('a thread that cannot open its keys fails the calls to it, and is closed all the same', async (t) => {
  const keys = join(temporaryDirectory(t), 'no directory');
  writeFileSync(keys, '');
  const equipping = new Equipping(keys);
  const asked = equipping.equip(randomUUID(), 1);
  const closed = equipping.close();
  await t.rejects(asked, { code: /EEXIST|ENOTDIR/ });
  await closed;
});

t.end();
