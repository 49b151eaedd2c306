/** What makes a move impossible is said before anything begins, and the account works on. */
import { once } from 'node:events';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { placeOf, startCell, startProxy, through } from '../support/cells.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { changeStored, isMoveUnderWay } from '../support/faults.ts';
import { withHaproxy } from '../support/haproxy.ts';

const moveToken = 'a-token-that-moves-whole-accounts';
const env = { SLIPWAY_MOVE_TOKEN: moveToken };

/** Two cells behind HAProxy; `more` are further settings of the second one. */
async function start(
  t: Test,
  { more = {}, sameKeys = true }: { more?: Record<string, string>; sameKeys?: boolean } = {},
) {
  const source = await startCell(t, 0, { env });
  const directory = temporaryDirectory(t);
  cpSync(join(source.directory, 'keys'), join(directory, 'keys'), { recursive: true });
  if (!sameKeys) writeFileSync(join(directory, 'keys', 'sealing.key'), otherKey(directory), { mode: 0o600 });
  const target = await startCell(t, 1, { env: { ...env, ...more }, directory });
  const proxied = await startProxy(t, [placeOf(source), placeOf(target)]);
  const account = Object.assign(through(proxied, source), await source.account());
  t.teardown(() => account.close());
  const config = join(proxied.directory, '..', 'cells.yaml');
  const run = (to: string, settings: Record<string, string> = env) =>
    runCommand(['account', 'move', account.accountId, '--to', to, '--config', config], settings);
  /** It is where it was, and can be written; no cell purges less because of it. */
  const worksOn = async (t: Test) => {
    await account.organization();
    t.equal(
      (await source.http('GET', `/api/v1/organizations?accountId=${account.accountId}`, { token: account.admin }))
        .status,
      200,
    );
    for (const one of [source, target]) t.equal(isMoveUnderWay(one), false);
  };
  return { source, target, account, config, run, worksOn };
}

/** A key of the same form. */
function otherKey(directory: string): Buffer {
  const key = readFileSync(join(directory, 'keys', 'sealing.key'));
  const last = key.length - 4;
  key[last] = key[last] === 65 ? 66 : 65;
  return key;
}

t.test('Tokens, names and the socket of HAProxy', withHaproxy, async (t) => {
  const { config, run, worksOn } = await start(t);
  for (const [why, settings, to, said] of [
    ['no token', {}, 'c02', /SLIPWAY_MOVE_TOKEN is not set/],
    ['another token', { SLIPWAY_MOVE_TOKEN: `${moveToken}-2` }, 'c02', /has another SLIPWAY_MOVE_TOKEN/],
    ['a cell that is not there', env, 'c03', /There is no cell c03 in .*Its cells are c01, c02/],
  ] as const) {
    const { code, stderr } = await run(to, settings);
    t.match({ code, stderr }, { code: 2, stderr: said }, why);
    await worksOn(t);
  }
  const text = readFileSync(config, 'utf8');
  writeFileSync(config, text.replace('admin.sock', 'nobody.sock'));
  const { code, stderr } = await run('c02');
  t.match({ code, stderr }, { code: 2, stderr: /HAProxy cannot be asked at .*nobody\.sock/ });
  writeFileSync(config, text);
  await worksOn(t);

  t.test('a cell of another version', async (t) => {
    // Only the version differs from what the second cell would answer.
    const answer = { version: '0.1.0', topicRoot: 'slipway/v1', state: 'none', move: null, from: null, to: null };
    const older = createServer((_, response) => response.end(JSON.stringify(answer))).listen(0, '127.0.0.1');
    t.teardown(() => older.close());
    await once(older, 'listening');
    const { port } = older.address() as AddressInfo;
    writeFileSync(config, text.replace(/(c02: .*http: )\d+/, `$1${port}`));
    const { code, stderr } = await run('c02');
    t.match(
      { code, stderr },
      { code: 2, stderr: /c01 has the version .* and c02 0\.1\.0\. Upgrade the older one first/ },
    );
    writeFileSync(config, text);
    await worksOn(t);
  });
});

t.test('A cell that would have to evict the messages of others', withHaproxy, async (t) => {
  const { account, run, worksOn } = await start(t, { more: { SLIPWAY_MESSAGES_MAX_BYTES: '2000000' } });
  const { id } = await account.template({ channels: ['readings'] });
  const { device, secret } = await account.device({ deviceTemplateId: id });
  const client = await account.connect({ deviceId: device.id, secret });
  const first = Date.parse('2026-01-01');
  for (let part = 0; part < 20; part += 1) {
    const lines = Array.from({ length: 1000 }, (_, n) => `${first + part * 1000 + n},,,${'x'.repeat(100)}`);
    await client.publishAsync(account.topic(device.id, 'readings'), lines.join('\n'), { qos: 1 });
  }
  const { code, stderr } = await run('c02');
  t.match(
    { code, stderr },
    { code: 2, stderr: /c02 cannot take the account: room is too small.*SLIPWAY_MESSAGES_MAX_BYTES/ },
  );
  await worksOn(t);
});

t.test("A device with the id of another account's device", withHaproxy, async (t) => {
  const { source, target, account, run, worksOn } = await start(t);
  const { id } = await target.template({ channels: ['readings'] });
  const theirs = await target.device({ deviceTemplateId: id });
  const client = await target.connect({ deviceId: theirs.device.id, secret: theirs.secret });
  const topic = target.topic(theirs.device.id, 'readings');
  await client.publishAsync(topic, `${Date.parse('2026-01-01')},,7,`, { qos: 1 });
  const template = await account.template();
  const mine = await account.create('/devices', 'device', { serialNumber: 'same id', deviceTemplateId: template.id });
  // As a CA does that writes it into a certificate.
  await changeStored(source, 'UPDATE "devices" SET "id" = ? WHERE "id" = ?', [theirs.device.id, mine.id]);
  const { code, stderr } = await run('c02');
  t.match({ code, stderr }, { code: 3, stderr: /c02 refuses .*are in another account here too/ });
  const { device } = await target.ok('GET', `/api/v1/devices/${theirs.device.id}`);
  t.match(device, { accountId: target.accountId, serialNumber: theirs.device.serialNumber });
  const { result } = await target.ok('GET', `/api/v4/data/${topic}/latest?pageSize=1`);
  t.equal(result[0]?.numericValue, 7, 'its messages are there');
  await worksOn(t);
});

t.test('A cell without room on its disk, or with another sealing key', withHaproxy, async (t) => {
  // Nothing is free beyond this reserve.
  const full = await start(t, { more: { SLIPWAY_DISK_RESERVE_BYTES: '999999999999999' } });
  t.match(await full.run('c02'), { code: 2, stderr: /c02 cannot take the account: room is too small.*and 0 are free/ });
  await full.worksOn(t);
  const foreign = await start(t, { sameKeys: false });
  t.match(await foreign.run('c02'), { code: 2, stderr: /c02 cannot take the account: keys differ/ });
  await foreign.worksOn(t);
});
