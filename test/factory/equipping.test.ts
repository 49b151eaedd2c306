import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Equipping } from '../../src/factory/provisioning/equipping.js';
import { makeResultKey, ResultSeal } from '../../src/factory/results/store.js';
import { Sealing } from '../../src/identity/secrets/sealing.js';
import { temporaryDirectory } from '../support/directory.js';

t.test('anyone who asks for secrets gets their own, also when what was asked later is answered first', async (t) => {
  const keys = join(temporaryDirectory(t), 'keys');
  const sealing = Sealing.open(keys);
  const equipping = new Equipping(keys);
  t.teardown(() => equipping.close());
  const newJob = () => {
    const id = randomUUID();
    return { id, accountId: randomUUID(), sealedKey: makeResultKey(sealing, id) };
  };
  const unitsOf = (prefix: string, count: number) =>
    Array.from({ length: count }, (_, row) => ({
      row,
      serialNumber: `${prefix}-${row}`,
      deviceTemplateId: randomUUID(),
    }));

  const [large, small] = [newJob(), newJob()];
  const asked = [
    { job: large, units: unitsOf('LARGE', 400) },
    { job: small, units: unitsOf('SMALL', 1) },
    { job: large, units: unitsOf('AGAIN', 50) },
  ];
  const answers = asked.map(({ job, units }) => equipping.equip(job, units));
  // Without a key there is nothing to hash: it is refused at once.
  await t.rejects(equipping.equip({ ...newJob(), sealedKey: null }, unitsOf('NONE', 1)), { message: /has no key/ });
  for (const [n, { job, units }] of asked.entries()) {
    const equipped = await (answers[n] as (typeof answers)[0]);
    const seal = ResultSeal.of({ sealing }, job);
    t.strictSame(
      equipped.map(({ sealedResult }, row) => seal?.open(row, Buffer.from(sealedResult)).serialNumber),
      units.map(({ serialNumber }) => serialNumber),
    );
  }
});

t.test('a thread that cannot open its keys fails the calls to it, and is closed all the same', async (t) => {
  const keys = join(temporaryDirectory(t), 'no directory');
  writeFileSync(keys, '');
  const equipping = new Equipping(keys);
  const job = { id: randomUUID(), accountId: randomUUID(), sealedKey: null };
  const asked = equipping.equip(job, [{ row: 1, serialNumber: 'A', deviceTemplateId: randomUUID() }]);
  const closed = equipping.close();
  await t.rejects(asked, { code: /EEXIST|ENOTDIR/ });
  await closed;
});
