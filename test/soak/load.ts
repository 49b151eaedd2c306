/** A mixed load that goes on: each part does one thing over and over, and ends of itself when the time is over. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Packet } from 'mqtt-packet';
import { type Link, type Login, openLink, publishBytes } from '../../bench/link.ts';
import type { Api } from '../crash/api.ts';

/** Milliseconds in which everything must be answered. */
const patience = 30_000;
const deviceCount = 16;
/** Milliseconds between the messages of one device. */
const pace = 15;
const jobRows = 100;

export interface Load {
  /** How often each thing has been done. */
  done: Map<string, number>;
  /** What went wrong, in sentences. */
  failures: string[];
  /** Resolves when all parts have ended. */
  ended: Promise<void>;
}

/** Makes the devices, and starts all parts; each does its thing once, however short the time is. */
export async function startLoad(api: Api, mqttPort: number, isOver: () => boolean): Promise<Load> {
  const { accountId } = api;
  const { deviceTemplate } = await api.ok('POST', '/api/v1/devices/templates', { name: 'Soak' });
  for (const [name, persistenceType] of [
    ['temperature', 'timeSeries'],
    ['state', 'simple'],
  ])
    await api.ok('POST', '/api/v1/channels/templates', {
      ...{ entityId: deviceTemplate.id, entityType: 'deviceTemplate', name, persistenceType },
    });
  const logins: Login[] = [];
  for (let n = 0; n < deviceCount; n += 1) logins.push(await newDevice(api, deviceTemplate.id, `soak ${n}`));

  const root = `slipway/v1/${accountId}/d`;
  const user = (clientId: string): Login => ({ username: 'Auth:JWT', password: api.token, clientId });
  const load: Load = { done: new Map(), failures: [], ended: Promise.resolve() };
  const again = async (what: string, act: (time: number) => Promise<number>) => {
    load.done.set(what, 0);
    for (let time = 1; time === 1 || !isOver(); time += 1)
      try {
        const count = await act(time);
        load.done.set(what, (load.done.get(what) ?? 0) + count);
      } catch (error) {
        load.failures.push(`${what}: ${error instanceof Error ? error.message : error}`);
        // A failure that lasts is listed once a second, not as often as it can be tried.
        await sleep(1000);
      }
  };
  const first = logins[0]?.username ?? '';
  load.ended = Promise.all([
    ...logins.map((login, n) =>
      again('messages', (time) => speak(isOver, mqttPort, login, `${root}/${login.username}`, n + time)),
    ),
    again('heard', () => listen(mqttPort, user('stays'), `${root}/+/temperature`, 2500)),
    again('heard', (time) => listen(mqttPort, user(`comes ${time % 3}`), `${root}/#`, 1000)),
    again('streams', () => followStream(api)),
    again('devices', (time) => changeDevice(api, deviceTemplate.id, `made ${time}`)),
    again('reads', (time) => read(api, first, `${root}/${first}/temperature`, time)),
    again('logins', () => logInAndOut(api)),
    again('rows of jobs', (time) => runJobs(api, deviceTemplate.id, `job ${time}`)),
  ]).then(() => {});
  return load;
}

async function newDevice(api: Api, deviceTemplateId: string, serialNumber: string): Promise<Login> {
  const { device } = await api.ok('POST', '/api/v1/devices', { serialNumber, deviceTemplateId });
  const credential = { entityId: device.id, entityType: 'device' };
  const { mqttCredential } = await api.ok('POST', '/api/v1/access/mqtt-credentials', credential);
  return { username: device.id, password: mqttCredential.secret, clientId: 'soak' };
}

/** One connection: some dozens of messages, each acknowledged, and an end that is clean or is not. */
async function speak(isOver: () => boolean, port: number, login: Login, base: string, turn: number): Promise<number> {
  const qos = turn % 4 === 0 ? 2 : 1;
  let acknowledged = () => {};
  const hear = (packet: Packet, link: Link) => {
    if (packet.cmd === 'pubrec') link.send({ cmd: 'pubrel', messageId: packet.messageId ?? 1 });
    if (packet.cmd === 'puback' || packet.cmd === 'pubcomp') acknowledged();
  };
  const link = await within('CONNACK', openLink({ port }, { ...login, clean: turn % 3 > 0 }, hear));
  if (link.returnCode !== 0) throw new Error(`CONNACK ${link.returnCode}`);
  const count = 30 + ((turn * 7) % 60);
  let n = 0;
  while (n < count && !isOver()) {
    n += 1;
    const done = new Promise<void>((resolve) => {
      acknowledged = resolve;
    });
    const [channel, payload] =
      n % 10 === 0 ? ['state', `${n}`] : n % 7 === 0 ? ['_log', `entry ${turn}`] : ['temperature', `,t,${n},`];
    link.send(publishBytes(`${base}/${channel}`, payload, { qos, messageId: n, retain: channel === 'state' }));
    await within('an acknowledgement', done);
    await sleep(pace);
  }
  if (turn % 2) link.send({ cmd: 'disconnect' });
  else link.socket.destroy();
  await link.closed;
  return n;
}

/** A stored session that is there for some time, and away for as long again when it is one that comes and goes. */
async function listen(port: number, login: Login, topic: string, time: number): Promise<number> {
  let heard = 0;
  const link = await within(
    'CONNACK',
    openLink({ port }, { ...login, clean: false }, (packet, own) => {
      const { cmd, messageId = 0 } = packet;
      if (cmd === 'pubrel') own.send({ cmd: 'pubcomp', messageId });
      if (cmd !== 'publish') return;
      heard += 1;
      if (packet.qos > 0) own.send({ cmd: packet.qos === 1 ? 'puback' : 'pubrec', messageId });
    }),
  );
  if (link.returnCode !== 0) throw new Error(`CONNACK ${link.returnCode}`);
  link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 2 }] } as Packet);
  // It hears as many messages as come in this time.
  await sleep(time);
  link.send({ cmd: 'disconnect' });
  await link.closed;
  // The paces of the load: so long nobody listens, and messages wait in the queue.
  await sleep(200);
  return heard;
}

/** @throws Error when the stream is refused, or ends of itself. */
async function followStream(api: Api): Promise<number> {
  const signal = AbortSignal.timeout(1000);
  const headers = { authorization: `Bearer ${api.token}` };
  const response = await fetch(`${api.url}/api/v1/stream?topics=%23`, { headers, signal }).catch(() => undefined);
  if (response && response.status !== 200) throw new Error(`a stream answered ${response.status}`);
  // It ends with the signal, which fetch throws.
  await response?.text().catch(() => {});
  if (!signal.aborted) throw new Error('a stream ended');
  return 1;
}

async function changeDevice(api: Api, deviceTemplateId: string, serialNumber: string): Promise<number> {
  const { username: id } = await newDevice(api, deviceTemplateId, serialNumber);
  const { device } = await api.ok('GET', `/api/v1/devices/${id}`);
  const changed = await api.ok('PUT', `/api/v1/devices/${id}`, { name: serialNumber }, device.version);
  await api.ok('DELETE', `/api/v1/devices/${id}`, undefined, changed.device.version);
  await sleep(50);
  return 1;
}

async function read(api: Api, id: string, topic: string, time: number): Promise<number> {
  const { accountId } = api;
  const since = new Date(Date.now() - 600_000).toISOString();
  const paths = [
    `/api/v1/devices?accountId=${accountId}&serialNumber=a&pageSize=50`,
    `/api/v1/devices/${id}/logs?pageSize=100`,
    `/api/v4/data/${topic}?startDateTime=${since}&pageSize=200`,
    `/api/v4/data/${topic}?startDateTime=${since}&rollup=1m&aggregate=avg,max`,
    `/api/v1/audit?accountId=${accountId}&pageSize=50`,
    '/api/v1/usage',
  ];
  await api.ok('GET', paths[time % paths.length] ?? '');
  const must = [{ match: { message: 'entry' } }];
  if (time % 10 === 0) await api.ok('POST', '/api/v1/logs/search', { accountId: undefined, query: { bool: { must } } });
  await sleep(30);
  return 1;
}

async function logInAndOut({ url, accountId, admin }: Api): Promise<number> {
  const post = (path: string, body: object, headers = {}) =>
    fetch(`${url}/api/v1${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  const { email: emailAddress, password } = admin;
  const { jwt } = (await (await post('/auth/login-user', { accountId, emailAddress, password })).json()) as {
    jwt: string;
  };
  const { status } = await post('/sessions/logout', {}, { authorization: `Bearer ${jwt}` });
  if (status !== 200) throw new Error(`logout answered ${status}`);
  await sleep(1000);
  return 1;
}

/** Devices made from rows, their results taken, and all of them deleted again. */
async function runJobs(api: Api, template: string, name: string): Promise<number> {
  const rows = Array.from({ length: jobRows }, (_, n) => ({ serialNumber: `${name} ${n}` }));
  const made = await job(api, `/api/v1/provisioning/jobs?template=${template}`, { accountId: undefined, rows });
  const results = await fetch(`${api.url}/api/v1/provisioning/jobs/${made}/results?format=csv`, {
    headers: { authorization: `Bearer ${api.token}` },
  });
  if (results.status !== 200) throw new Error(`results answered ${results.status}`);
  await results.text();
  await api.ok('POST', `/api/v1/provisioning/jobs/${made}/results/confirm`);
  await job(api, '/api/v1/devices/jobs', { action: 'delete', filter: { serialNumber: `${name} ` } });
  await sleep(1000);
  return jobRows;
}

async function job(api: Api, path: string, body: object): Promise<string> {
  const answer = await api.ask('POST', path, body);
  if (answer.status !== 202) throw new Error(`${path} answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  const { id } = answer.body.job;
  const until = performance.now() + patience;
  for (;;) {
    const { job } = await api.ok('GET', `/api/v1/provisioning/jobs/${id}`);
    if (job.state === 'succeeded') return id;
    if (job.state === 'failed' || performance.now() > until)
      throw new Error(`a job did not succeed: ${JSON.stringify(job)}`);
    await sleep(200);
  }
}

/** @throws Error when it takes too long. */
async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  const over = new AbortController();
  const late = sleep(patience, undefined, { signal: over.signal }).then(
    () => Promise.reject(new Error(`${what} did not come within ${patience} ms`)),
    () => new Promise<never>(() => {}),
  );
  try {
    return await Promise.race([promise, late]);
  } finally {
    over.abort();
  }
}
