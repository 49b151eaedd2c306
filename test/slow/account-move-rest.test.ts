/** While an account is paused for its move, nothing of it works by itself in either cell; it goes on where the account is then. */
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { MessagesOut } from '../../cells/moves/live/messages-out.ts';
import { firstPage, hashOf, RegistryPages } from '../../cells/moves/live/pages.ts';
import type { Email } from '../../src/operations/emails/texts.ts';
import { metric } from '../broker/metrics.ts';
import { type Device, devices, publish, rollOut, rolloutUntil } from '../firmware/fleet.ts';
import { moveToken, startMovable } from '../support/cells.ts';
import { withHaproxy } from '../support/haproxy.ts';
import { follow, postRows, provision } from '../support/jobs.ts';
import { Mailbox } from '../support/mailbox.ts';

import { nextMessage, type Service, startService } from '../support/service.ts';
import { storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';

const env = { SLIPWAY_MOVE_TOKEN: moveToken };
const jobRows = 1500;

/** Rows of a job that are done. */
const doneOf = (service: Service, id: string) =>
  storedRows<{ done: number }>(service, 'SELECT "done" FROM "jobs" WHERE "id" = ?', [id])[0]?.done ?? 0;
const connectionsOf = (service: Service) => metric({ service }, 'slipway_mqtt_connections');

/** Things that become due in a minute: a command that expires, a rollout that begins. */
async function somethingDue(service: Service, now: number) {
  const template = await service.template({ channels: ['state'] });
  const [device, other] = (await devices(service, template.id, 2)) as [Device, Device];
  const due = new Date(now + 60_000).toISOString();
  const body = { name: 'reboot', expiresAt: due };
  const { command } = await service.ok('POST', `/api/v1/devices/${device.id}/commands`, { body });
  const firmware = await publish(service, template.id, '2.0.0');
  const rollout = await rollOut(service, firmware, { target: { deviceIds: [other.id] }, startAt: due });
  return { template, device, other, command, rollout };
}

/** Resolves when what became due has happened. */
async function happened(service: Service, { command, device, rollout }: Awaited<ReturnType<typeof somethingDue>>) {
  await rolloutUntil(service, rollout.id, ({ counts }) => counts.pending === 1);
  const path = `/api/v1/devices/${device.id}/commands/${command.id}` as const;
  await until(async () => (await service.ok('GET', path)).command.state === 'expired');
}

/** All that a cell has of an account, by table. */
function stored({ directory }: Service, accountId: string): Record<string, unknown> {
  const pages = new RegistryPages(join(directory, 'registry.db'), [accountId]);
  const found: Record<string, string[]> = {};
  for (let place: typeof firstPage | undefined = firstPage; place; ) {
    const read: ReturnType<RegistryPages['read']> = pages.read(place, 500);
    found[read.page.table] = [...(found[read.page.table] ?? []), hashOf(read.page.rows)];
    place = read.next;
  }
  pages.close();
  const out = new MessagesOut(join(directory, 'messages.db'), [accountId], []);
  const messages = { logs: out.countLogs(Number.MAX_SAFE_INTEGER), mqtt: out.mqtt() };
  out.close();
  return { ...found, ...messages };
}

t.test('Commands, rollouts and jobs rest in both cells, and go on in the second one', withHaproxy, async (t) => {
  const { time, source, target, account, move } = await startMovable(t);
  const own = await somethingDue(account, time.now);
  const lastEventId = /^id: (\S+)$/m.exec(await streamUntil(account, own, /^id: /m))?.[1] ?? '';
  // Other accounts of both cells, which show that these work meanwhile.
  const witnesses = [source, target] as const;
  const due = await Promise.all(witnesses.map((one) => somethingDue(one, time.now)));

  const will = {
    topic: account.topic(own.device.id, 'state'),
    payload: Buffer.from('gone'),
    qos: 1 as const,
    retain: false,
  };
  const { id: deviceId, secret } = own.device;
  const client = await account.connect({ deviceId, secret }, { clientId: 'unit', will });
  const staying = { deviceId: own.other.id, secret: own.other.secret };
  await account.connect(staying, { clientId: 'unit', reconnectPeriod: 20 });

  const rows = Array.from({ length: jobRows }, (_, n) => ({ serialNumber: `job-${n}` }));
  const query = `?template=${own.template.id}`;
  // It comes while the account is copied.
  let posted: ReturnType<typeof postRows> | undefined;
  let open = 0;
  let jobId = '';
  await move(
    async () => {
      const connections = await connectionsOf(source);
      client.stream.destroy();
      await until(async () => (await connectionsOf(source)) !== connections);
      const before = witnesses.map((one) => stored(one, account.accountId));
      time.now += 120_000;
      for (const [place, one] of witnesses.entries()) {
        await happened(one, due[place] as (typeof due)[number]);
        const job = await provision(one, [{ serialNumber: 'made meanwhile' }], `?template=${due[place]?.template.id}`);
        t.match(job, { state: 'succeeded', done: 1 });
      }
      t.strictSame(
        witnesses.map((one) => stored(one, account.accountId)),
        before,
        'nothing was written of the account',
      );
      const { body } = (await posted) as Awaited<ReturnType<typeof postRows>>;
      jobId = body.job.id;
      open = jobRows - doneOf(source, jobId);
    },
    () => {
      posted = postRows(account, rows, query);
    },
  );

  t.comment(`${open} rows of the job were still to be done`);
  await happened(account, own);
  t.match((await follow(account, jobId)).at(-1), { state: 'succeeded', done: jobRows, failed: 0 });
  const list = `/api/v1/devices?accountId=${account.accountId}&serialNumber=job-&pageSize=1` as const;
  t.equal((await account.ok('GET', list)).devices.meta.count, jobRows, 'each device was made once');

  const again = await streamUntil(account, own, /^event: /m, lastEventId);
  t.match(again, /^event: gap$/m, 'a stream is told that it has to read what it has missed');

  t.test('a device that went away meanwhile is not connected, and its log and its will say so', async (t) => {
    const { device } = await account.ok('GET', `/api/v1/devices/${deviceId}`);
    t.equal(device.connected, false);
    await lifecycleIs(account, deviceId, ['connected', 'disconnected']);
    const path = `/api/v1/devices/${staying.deviceId}` as const;
    await until(async () => (await account.ok('GET', path)).device.connected === true);
    await lifecycleIs(account, staying.deviceId, ['connected', 'disconnected', 'connected']);
    const reader = await account.connect({ jwt: account.admin });
    await reader.subscribeAsync(will.topic);
    const told = nextMessage(reader);
    time.now += 61_000;
    t.equal((await told).text, 'gone');
  });
});

/** What a stream of a device sends until it matches. */
async function streamUntil(service: Service, { device }: { device: Device }, wanted: RegExp, lastEventId = '') {
  const aborter = new AbortController();
  const headers = { authorization: `Bearer ${service.admin}`, 'last-event-id': lastEventId };
  const topic = encodeURIComponent(service.topic(device.id, '#'));
  const response = await fetch(`${service.server.url}/api/v1/stream?topics=${topic}`, {
    headers,
    signal: aborter.signal,
  });
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (wanted.test(text)) break;
  }
  aborter.abort();
  return text;
}

/** Connects and disconnects of a device, as its log has them, the last one first. */
const lifecycleOf = async (service: Service, deviceId: string) =>
  (await service.ok('GET', `/api/v1/devices/${deviceId}/logs?severity=lifecycle`)).logs.results;

/** Waits until they are these: the log is another file than the one that says whether it is connected. */
async function lifecycleIs(service: Service, deviceId: string, wanted: string[]): Promise<void> {
  await until(
    async () => (await lifecycleOf(service, deviceId)).map(({ message }) => message).reverse(),
    (said) => isDeepStrictEqual(said, wanted),
  );
}

t.test('When the first cell keeps the account, all goes on there', withHaproxy, async (t) => {
  const { time, source, account, move, undo } = await startMovable(t);
  const own = await somethingDue(account, time.now);
  const { id: deviceId, secret } = own.device;
  const client = await account.connect({ deviceId, secret }, { clientId: 'unit' });
  const heard = nextMessage(client);
  await client.subscribeAsync(account.topic(deviceId, '_commands'), { qos: 1 });
  t.equal(JSON.parse((await heard).text).id, own.command.id);
  const path = `/api/v1/devices/${deviceId}/commands/${own.command.id}` as const;
  t.equal((await account.ok('GET', path)).command.state, 'sent');
  let left = 0;
  await t.rejects(
    move(async () => {
      const connections = await connectionsOf(source);
      client.stream.destroy();
      await until(async () => (await connectionsOf(source)) !== connections);
      left = time.now;
      time.now += 20_000;
      throw new Error('broken off');
    }),
    /broken off/,
  );
  t.match(await undo(), { in: 'c01', undone: true });
  t.equal((await account.ok('GET', path)).command.state, 'queued', 'it waits for the next connection');
  await until(async () => !(await account.ok('GET', `/api/v1/devices/${deviceId}`)).device.connected);
  const [last] = await until(
    () => lifecycleOf(account, deviceId),
    ([last]) => last?.message === 'disconnected',
  );
  t.equal(last?.sourceTimestamp, new Date(left).toISOString());
  time.now += 60_000;
  await happened(account, own);

  t.test('a job rests while the account is paused', async (t) => {
    const ask = (step: string) =>
      fetch(`${source.server.url}/cell/move/${step}?accountId=${account.accountId}&move=by-hand`, {
        method: 'POST',
        headers: { authorization: `Bearer ${env.SLIPWAY_MOVE_TOKEN}` },
        body: JSON.stringify({ from: 'c01', to: 'c02' }),
      });
    t.equal((await ask('leave')).status, 200);
    const rows = Array.from({ length: jobRows }, (_, n) => ({ serialNumber: `job-${n}` }));
    const { body } = await postRows(account, rows, `?template=${own.template.id}`);
    t.equal((await ask('pause')).status, 200);
    const done = () => doneOf(source, body.job.id);
    const before = done();
    t.ok(before < jobRows, `${before} rows are done`);
    const others = await provision(source, rows, `?template=${(await source.template()).id}`);
    t.match(others, { state: 'succeeded', done: jobRows }, 'as many of another account are done meanwhile');
    t.equal(done(), before);
    t.match(await undo(), { in: 'c01' });
    t.match((await follow(account, body.job.id)).at(-1), { state: 'succeeded', done: jobRows, failed: 0 });
  });
});

t.test('a GET that changes something ends before its account is paused', async (t) => {
  const mailbox = new Mailbox();
  let letGo = () => {};
  const held = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const send = async (email: Email) => {
    await mailbox.send(email);
    await held;
  };
  const service = await startService(t, { env, mail: { send } });
  const ask = (step: string) =>
    service.http('POST', `/cell/move/${step}?accountId=${service.accountId}&move=by-hand`, {
      token: env.SLIPWAY_MOVE_TOKEN,
      body: { from: 'c01', to: 'c02' },
    });
  const { endUser, email } = await service.endUser((await service.organization()).id);
  const { appToken } = await service.create('/applications', 'application', { name: 'Phone', kind: 'endUserApp' });
  t.equal((await ask('leave')).status, 200);
  const reset = service.http('GET', `/api/v1/users/${endUser.userId}/password-reset-token`, {
    token: null,
    headers: { accesstoken: String(appToken) },
  });
  await mailbox.nextTokenTo(email);
  t.match(await ask('pause'), { status: 503, text: /under way did not end in time/ });
  letGo();
  t.equal((await reset).status, 200);
  t.equal((await ask('pause')).status, 200);
});
