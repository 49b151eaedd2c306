/** One rollout to a whole large fleet: what it costs the event loop and memory, and that every device has an end. */
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { giveSecrets } from '../../../bench/equip.ts';
import { seed, seedAdmin } from '../../../bench/seed.ts';
import { openSqlite } from '../../../db/sqlite/open.ts';
import type { Ok } from '../../support/answers.ts';
import { temporaryDirectory } from '../../support/directory.ts';
import type { Felt } from '../../support/loop-probe.ts';
import { type Launched, launch } from '../../support/process.ts';
import type { Made } from '../../support/service.ts';
import { copyKeys } from '../../support/template.ts';
import { sha256 } from '../fleet.ts';

const probe = fileURLToPath(new URL('../../support/loop-probe.ts', import.meta.url));
/** Bytes of the file; those of all downloads at once would be too many to wait for. */
const fileBytes = 100_000;
/** What may stay in the heap after a rollout has done anything, megabytes: ids of the devices, and little more. */
const maxHeap = 50;

type Rollout = Omit<Made<'firmwareRollout'>, 'matched'>;

interface Size {
  devices: number;
  /** Devices that download over HTTP, all at once; and devices that listen over MQTT. */
  polling: number;
  listening: number;
}

async function askProbe({ child }: Launched): Promise<Felt> {
  const answer = once(child, 'message');
  child.send('');
  return (await answer)[0] as Felt;
}

/** The devices of one template; a registry with a fleet is made as the benchmarks make theirs. */
async function prepare(directory: string, { devices, polling, listening }: Size) {
  copyKeys(directory);
  const accountId = await seed(directory, devices, () => {});
  const file = openSqlite(join(directory, 'registry.db'));
  const deviceTemplateId = file
    .prepare('SELECT "id" FROM "deviceTemplates" WHERE "name" = ?')
    .pluck()
    .get('Template 1');
  file.prepare('UPDATE "devices" SET "deviceTemplateId" = ?').run(deviceTemplateId);
  const ids = file
    .prepare('SELECT "id" FROM "devices" WHERE "deleted" IS NULL ORDER BY "id"')
    .pluck()
    .all() as string[];
  file.close();
  const speaking = await giveSecrets(directory, accountId, ids.slice(0, polling + listening));
  return { accountId, deviceTemplateId, count: ids.length, speaking };
}

/** Rolls a package out to `devices` devices and pauses, resumes, times out and cancels rollouts of that size. */
export async function proveLarge(t: Test, size: Size): Promise<void> {
  const directory = temporaryDirectory(t);
  const { accountId, deviceTemplateId, count, speaking } = await prepare(directory, size);
  const unlimited = { SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS: '0', SLIPWAY_MQTT_MAX_CONNECTIONS_PER_ADDRESS: '0' };
  const launched = launch(directory, unlimited, probe);
  t.teardown(() => launched.child.kill('SIGKILL'));
  const { url, mqttPort } = await launched.listening;
  let token = '';
  const call = async <const M extends string, const P extends string>(
    method: M,
    path: P,
    body?: object | Buffer,
    headers = {},
  ): Promise<Ok<M, `/api/v1${P}`>> => {
    const isRaw = Buffer.isBuffer(body);
    const type = { 'content-type': isRaw ? 'application/octet-stream' : 'application/json' };
    const answer = await fetch(`${url}/api/v1${path}`, {
      method,
      headers: { ...(body && type), ...(token && { authorization: `Bearer ${token}` }), ...headers },
      ...(body && { body: isRaw ? new Uint8Array(body) : JSON.stringify(body) }),
    });
    if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${await answer.text()}`);
    return (await answer.json()) as Ok<M, `/api/v1${P}`>;
  };
  const { email: emailAddress, password } = seedAdmin;
  token = (await call('POST', '/auth/login-user', { accountId, emailAddress, password })).jwt;
  const publish = async (firmwareVersion: string): Promise<string> => {
    const named = { accountId, deviceTemplateId, name: 'Large', firmwareVersion };
    const { id } = (await call('POST', '/firmware/packages', named)).firmwarePackage;
    const path = `/firmware/packages/${id}`;
    const { firmwarePackage } = await call('PUT', `${path}/files/app.bin`, Buffer.alloc(fileBytes, firmwareVersion));
    await call('POST', `${path}/publish`, undefined, { etag: firmwarePackage.version });
    return id;
  };
  const [polling, listening] = [speaking.slice(0, size.polling), speaking.slice(size.polling)];
  let offers = 0;
  for (const { id, secret, root } of listening) {
    const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${mqttPort}`, { username: id, password: secret });
    t.teardown(() => client.end(true));
    client.on('message', (_, payload) => {
      offers += JSON.parse(payload.toString()).files.length;
    });
    await client.subscribeAsync(`${root}/_firmware`, { qos: 1 });
  }
  // What the connections left to do is not counted.
  await sleep(1000);
  await askProbe(launched);
  let before = await askProbe(launched);
  const longest: Array<[string, number]> = [];
  /** Does something, and notes what it has cost the service. */
  const during = async <R>(what: string, work: () => Promise<R>): Promise<R> => {
    await askProbe(launched);
    const began = performance.now();
    const result = await work();
    const { held, rss, heap } = await askProbe(launched);
    const seconds = (performance.now() - began) / 1000;
    longest.push([what, held]);
    t.comment(
      `${what}: ${seconds.toFixed(1)} s, event loop held ${held.toFixed(1)} ms at most, ${(rss - before.rss).toFixed(0)} MB more, of which ${(heap - before.heap).toFixed(0)} MB stay in the heap`,
    );
    t.ok(heap - before.heap < maxHeap, `${what}: memory`);
    return result;
  };
  const rollOut = async (body: object): Promise<string> => {
    const target = { filter: { deviceTemplateId } };
    return (await call('POST', '/firmware/rollouts', { accountId, target, ...body })).firmwareRollout.id;
  };
  const until = async (id: string, isWanted: (rollout: Rollout) => boolean): Promise<Rollout> => {
    for (;;) {
      const { firmwareRollout } = await call('GET', `/firmware/rollouts/${id}`);
      if (isWanted(firmwareRollout)) return firmwareRollout;
      await sleep(50);
    }
  };
  const taken = ({ counts }: Rollout) => Object.values(counts).reduce((sum, one) => sum + one, 0);

  // For comparison: what an idle service costs in this time.
  await during('nothing', () => sleep(3000));
  const [one, two, three] = [await publish('1'), await publish('2'), await publish('3')];
  before = await askProbe(launched);
  const first = await during('a rollout in stages of 1, 10 and 100 percent', async () => {
    const stages = [{ percent: 1, pauseSeconds: 0 }, { percent: 10, pauseSeconds: 0 }, { percent: 100 }];
    const id = await rollOut({ firmwarePackageId: one, stages });
    await until(id, (rollout) => taken(rollout) === count);
    return id;
  });
  const { devices: staged } = await call('GET', `/firmware/rollouts/${first}/devices?pageSize=1000&page=1`);
  const early = staged.results.filter(({ stage }) => stage < 3).length;
  t.ok(early > 50 && early < 150, `${early} of 1,000 devices that follow each other were in the first tenth`);
  t.equal(offers, listening.length, 'each listening device has got its offer once');

  await during(`${polling.length} downloads begun at once`, () =>
    Promise.all(polling.map((device) => downloadAll(url, device, sha256(Buffer.alloc(fileBytes, '1'))))),
  );
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const refused = Number(/^slipway_firmware_downloads_refused_total (\d+)/m.exec(metrics)?.[1]);
  t.comment(`${refused} requests were told to try again`);
  t.equal((await until(first, () => true)).counts.succeeded, polling.length);

  await during('pause and resume', async () => {
    await call('POST', `/firmware/rollouts/${first}/pause`);
    await call('POST', `/firmware/rollouts/${first}/resume`);
  });
  const late = await during('a newer rollout takes all of them, and all of them time out', async () => {
    const id = await rollOut({ firmwarePackageId: two, deviceDeadlineSeconds: 1, maxFailurePercent: 100 });
    return until(id, ({ state }) => state === 'finished');
  });
  t.equal(late.counts.timedOut, count, 'every device has an end');
  t.equal((await until(first, ({ state }) => state === 'finished')).counts.superseded, count - polling.length);
  await during('a retry of all of them', () => call('POST', `/firmware/rollouts/${late.id}/retry`));
  await until(late.id, ({ state }) => state === 'finished');
  const cancelled = await during('a rollout that is cancelled', async () => {
    const id = await rollOut({ firmwarePackageId: three });
    await until(id, (rollout) => taken(rollout) === count);
    await call('POST', `/firmware/rollouts/${id}/cancel`);
    return until(id, () => true);
  });
  t.match(cancelled, { state: 'cancelled', counts: { cancelled: count } });
  t.comment(`longest: ${longest.map(([what, held]) => `${held.toFixed(1)} ms (${what})`).join(', ')}`);
}

/** Polls, downloads, tries again when told to, and says that it has succeeded. */
async function downloadAll(url: string, { id, secret }: { id: string; secret: string }, hash: string): Promise<void> {
  const authorization = `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;
  const headers = { authorization, 'content-type': 'application/json' };
  const offer = (await (await fetch(`${url}/api/v1/firmware/offer`, { headers })).json()) as Ok<
    'GET',
    '/api/v1/firmware/offer'
  >;
  for (;;) {
    const answer = await fetch(offer.files[0].url);
    const bytes = new Uint8Array(await answer.arrayBuffer());
    if (answer.status === 200) {
      if (sha256(bytes) !== hash) throw new Error('a download has the wrong bytes');
      break;
    }
    if (answer.status !== 429) throw new Error(`a download answered ${answer.status}`);
    // A tenth of what it is told: it need not be true, and the run is shorter.
    await sleep(Number(answer.headers.get('retry-after')) * 100);
  }
  const body = JSON.stringify({ state: 'succeeded', firmwareVersion: offer.firmwareVersion });
  const said = await fetch(`${url}/api/v1/firmware/status`, { method: 'POST', headers, body });
  if (said.status !== 200) throw new Error(`a report answered ${said.status}`);
  await said.arrayBuffer();
}
