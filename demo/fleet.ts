/** A believable fleet for `npm run demo -- --keep`: organizations, people, products, devices, a day of data, jobs and a rollout. */
import { createHash, randomBytes } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import mqtt, { type MqttClient } from 'mqtt';
import type { Call, FleetDevice, FleetOptions, List, Login, MadeEntity, Make, Online, Session } from './answers.ts';
import { makeEnrollment } from './enrollment.ts';
import { categoriesOf, dayOf, products, readingsOf, samplesPerDay } from './products.ts';
import { firmwareBytes, leaving, makeTroubles, silent } from './troubles.ts';

/** The devices that are online. `publish` sends one reading of each. */
export interface Fleet {
  publish(): Promise<void>;
  close(): void;
}

/** The tree: each line is a name, indented by its level. */
const tree = `
Northwind Foods
  Harbour plant
    Hall A
    Hall B
    Cold store
  Hill depot
Lakeside Hospital
  Pharmacy
  Laboratory
Municipal Waterworks
  Pumping station East
  Pumping station West
Demo room`;

/** Where the organizations at the top are; those below them are near by. */
const sites: Record<string, [latitude: number, longitude: number]> = {
  'Northwind Foods': [53.54, 9.99],
  'Lakeside Hospital': [47.37, 8.54],
  'Municipal Waterworks': [41.38, 2.17],
  'Demo room': [51.51, -0.13],
};

/** A place near the site of an organization. */
function positionOf(organization: string, n: number): { latitude: number; longitude: number } {
  const above = tree.slice(0, tree.indexOf(organization) + organization.length).split('\n');
  const site = above.findLast((line) => line !== '' && !line.startsWith(' ')) ?? '';
  const [latitude, longitude] = sites[site] ?? [0, 0];
  return { latitude: latitude + ((n * 13) % 40) / 500, longitude: longitude + ((n * 29) % 40) / 500 };
}

const people = [
  ['Anna Berg', 'Northwind Foods'],
  ['Jonas Lind', 'Harbour plant'],
  ['Maria Costa', 'Cold store'],
  ['Piotr Nowak', 'Hill depot'],
  ['Leila Haddad', 'Lakeside Hospital'],
  ['Tom Fischer', 'Pharmacy'],
  ['Grace Okafor', 'Laboratory'],
  ['Henrik Dahl', 'Municipal Waterworks'],
  ['Sofia Rossi', 'Pumping station East'],
  ['Ben Carter', 'Pumping station West'],
] as const;

/** Random, and never four of a kind in a row, which the password policy refuses. */
export function makePassword(): string {
  return randomBytes(12)
    .toString('hex')
    .replace(/...(?=.)/g, '$&-');
}

/** Runs `work` for all items, `width` at a time. */
async function each<T>(items: readonly T[], width: number, work: (item: T, at: number) => Promise<void>) {
  const left = items.entries();
  const run = async () => {
    for (const [at, item] of left) await work(item, at);
  };
  await Promise.all(Array.from({ length: width }, run));
}

/** Points per second that the server takes from one caller; 0 is no limit. */
async function pointRate(call: Call): Promise<number> {
  const { usage } = await call<{ usage: { limits: Array<{ name: string; limit: number }> } }>('GET', '/v1/usage');
  return usage.limits.find(({ name }) => name === 'mqttPointRate')?.limit ?? 0;
}

/** Waits until points may be sent that come to three quarters of `perSecond`; lost time is not made up for. */
function pacePoints(perSecond: number): (points: number) => Promise<void> {
  let next = 0;
  return async (points) => {
    if (perSecond === 0) return;
    const now = performance.now();
    const turn = Math.max(now, next);
    next = turn + (points * 1000) / (0.75 * perSecond);
    await setTimeout(turn - now);
  };
}

/** Fills an account, and connects a part of its devices. */
export async function fillFleet(options: FleetOptions): Promise<Fleet> {
  const { url, accountId, deviceCount, onlineCount, say } = options;
  let token = '';
  const call: Call = async <T>(method: string, path: string, body?: unknown, headers = {}) => {
    const isRaw = typeof body === 'string' || body instanceof Uint8Array;
    const response = await fetch(`${url}/api${path}`, {
      method,
      headers: {
        ...(body !== undefined && !isRaw && { 'content-type': 'application/json' }),
        ...(token && { authorization: `Bearer ${token}` }),
        ...headers,
      },
      ...(body !== undefined && { body: isRaw ? (body as string) : JSON.stringify(body) }),
    });
    const answer = response.headers.get('content-type')?.includes('json') ? await response.json() : undefined;
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${JSON.stringify(answer)}`);
    return answer as T;
  };
  const make: Make = async (path, body) =>
    Object.values(
      await call<Record<string, MadeEntity>>('POST', `/v1${path}`, { accountId, ...body }),
    )[0] as MadeEntity;
  const { emailAddress, password } = options;
  token = (await call<Session>('POST', '/v1/auth/login-user', { accountId, emailAddress, password })).jwt;

  const templates = await makeProducts(make);
  say(`${templates.size} products with their channels and custom fields`);
  const organizations = await makeOrganizations(make);
  const logins: Login[] = [];
  for (const [name, organization] of people) {
    const idmUserEmail = `${name.toLowerCase().replace(' ', '.')}@demo.example`;
    const login = { createIdmUser: true, idmUserEmail, idmUserPassword: makePassword() };
    logins.push({ emailAddress: idmUserEmail, password: login.idmUserPassword });
    await make('/end-users', { ...login, name, organizationId: organizations.get(organization) });
  }
  await make('/account-users', {
    createIdmUser: true,
    idmUserEmail: 'operations@demo.example',
    idmUserPassword: makePassword(),
  });
  say(`${organizations.size} organizations and ${people.length + 1} people`);

  const devices = await makeDevices(call, options, organizations);
  say(`${deviceCount} devices by a provisioning job`);
  const turn = pacePoints(await pointRate(call));
  await each(devices, 4, async ({ topics, product }, at) => {
    await turn(categoriesOf(product).length * samplesPerDay);
    await call('POST', `/v4/data/${topics}`, dayOf(product, at), { 'content-type': 'text/csv' });
  });
  say('a day of data of each');
  await makeRest(call, make, { organizations, templates });
  say('programs, a station, a moved batch and the trash');

  await makeEnrollment({ ...options, make, templates, organizations });
  say('enrollment groups, what they made and refused, and certificates that end soon');

  await claimSome(call, { accountId, logins, devices, organizations });
  const clients = await goOnline(options, spread(devices, onlineCount));
  say(`${clients.length} devices are online`);
  await startRollout(call, make, accountId, templates.get('Room sensor') ?? '');
  await make('/fleets', { name: 'Behind on firmware', filter: 'connected eq true and firmwareVersion lt "2.0"' });
  const [first] = devices;
  if (first) for (const command of commands) await call('POST', `/v1/devices/${first.id}/commands`, command);
  say('a rollout, a fleet and commands');
  const quiet: Online[] = [];
  const publish = async () => {
    const now = Date.now();
    const online = clients.filter((one) => one.client.connected && !quiet.includes(one));
    await each(online, 8, async ({ client, device, at }) => {
      await client.publishAsync(device.topics, readingsOf(device.product, at, now), { qos: 1 });
    });
  };
  await publish();
  quiet.push(...clients.slice(-leaving - silent, -leaving));
  await makeTroubles({ ...options, call, make, templates, clients });
  say('what needs attention: refusals, a failed job, a paused rollout, bridges that cannot deliver, devices that left');
  return {
    publish,
    close() {
      for (const { client } of clients) client.end(true);
    },
  };
}

/** People claim devices from the stock with the codes of their labels. */
async function claimSome(
  call: Call,
  {
    accountId,
    logins,
    devices,
    organizations,
  }: {
    accountId: string;
    logins: readonly Login[];
    devices: readonly FleetDevice[];
    organizations: Map<string, string>;
  },
): Promise<void> {
  const stock = devices.filter(({ serialNumber }) => serialNumber.endsWith('-0040') || serialNumber.endsWith('-0060'));
  for (const [at, { id: deviceId }] of stock.entries()) {
    const [login, organization] = [logins[at], people[at]?.[1]];
    const { associationCode } = await call<{ associationCode: string }>(
      ...(['POST', '/v1/association/create-association-code', { deviceId }] as const),
    );
    const { jwt } = await call<Session>('POST', '/v1/auth/login-user', { accountId, ...login });
    const claim = { associationCode, organizationId: organizations.get(organization ?? '') };
    await call('POST', '/v1/association/start-association-with-code', claim, { authorization: `Bearer ${jwt}` });
  }
}

const commands = [
  { name: 'reboot', payload: { delaySeconds: 3 } },
  { name: 'setInterval', payload: { seconds: 60 } },
  { name: 'identify' },
];

async function makeProducts(make: Make): Promise<Map<string, string>> {
  const ids = new Map<string, string>();
  for (const { name, categories } of products) {
    const { id } = await make('/devices/templates', { name });
    const channel = { entityId: id, entityType: 'deviceTemplate' };
    await make('/channels/templates', { ...channel, name: 'readings', persistenceType: 'timeSeries', categories });
    await make('/channels/templates', { ...channel, name: 'events', persistenceType: 'simple' });
    const field = { deviceTemplateId: id };
    await make('/devices/custom-fields', {
      ...field,
      name: 'room',
      fieldType: 'string',
      description: 'Where it hangs',
    });
    await make('/devices/custom-fields', { ...field, name: 'calibrated', fieldType: 'boolean' });
    ids.set(name, id);
  }
  return ids;
}

async function makeOrganizations(make: Make): Promise<Map<string, string>> {
  const ids = new Map<string, string>();
  const above: string[] = [];
  for (const line of tree.split('\n').filter(Boolean)) {
    const level = line.search(/\S/) / 2;
    const name = line.trim();
    const { id } = await make('/organizations', { name, parentId: above[level - 1] ?? null });
    above[level] = id;
    ids.set(name, id);
  }
  return ids;
}

/** A row of the results of a provisioning job. */
interface Unit {
  deviceId: string;
  serialNumber: string;
  secret: string;
}

async function makeDevices(call: Call, options: FleetOptions, organizations: Map<string, string>) {
  const { deviceCount, accountId } = options;
  const places = [...organizations.keys()];
  const rows = products.flatMap(({ name, prefix, share, firmware }) =>
    Array.from({ length: Math.round(deviceCount * share) }, (_, n) => ({
      serialNumber: `${prefix}-${String(n + 1).padStart(4, '0')}`,
      template: name,
      // The last few are in stock: they belong to nobody yet.
      ...(n % 20 !== 19 && { organization: places[(n * 7) % places.length] }),
      firmwareVersion: n % 9 === 8 ? '1.0.0' : firmware,
      room: `${'ABCDEF'[n % 6]}${100 + (n % 40)}`,
      location: ['Ground floor', 'First floor', 'Roof', 'Basement'][n % 4],
      ...positionOf(places[(n * 7) % places.length] ?? '', n),
    })),
  );
  const { job } = await call<{ job: MadeEntity }>('POST', `/v1/provisioning/jobs?accountId=${accountId}`, { rows });
  await ended(call, job.id);
  const { results } = await call<{ results: Unit[] }>('GET', `/v1/provisioning/jobs/${job.id}/results?format=json`);
  return results.map(({ deviceId: id, serialNumber, secret }, at): FleetDevice => {
    const product = rows[at]?.template ?? '';
    return { id, serialNumber, secret, product, topics: `slipway/v1/${accountId}/d/${id}/readings` };
  });
}

/** Waits for the end of a job. */
async function ended(call: Call, id: string): Promise<void> {
  for (;;) {
    const { job } = await call<{ job: { state: string; action: string } }>('GET', `/v1/provisioning/jobs/${id}`);
    if (job.state === 'succeeded') return;
    if (job.state !== 'pending' && job.state !== 'running') throw new Error(`job ${job.action} ${job.state}`);
    await setTimeout(100);
  }
}

async function makeRest(
  call: Call,
  make: Make,
  { organizations, templates }: { organizations: Map<string, string>; templates: Map<string, string> },
): Promise<void> {
  await make('/applications', { name: 'Maintenance planner', kind: 'backEnd' });
  await make('/applications', { name: 'Customer app', kind: 'endUserApp' });
  await make('/applications', {
    name: 'Line 1',
    kind: 'station',
    deviceTemplateId: templates.get('Room sensor'),
    maxDevices: 5000,
    expiresAt: new Date(Date.now() + 30 * 86_400_000).toISOString(),
  });
  const filter = { organizationId: organizations.get('Demo room'), serialNumber: 'PC-' };
  const move = { action: 'move', filter, organizationId: organizations.get('Pumping station East') };
  for (const dryRun of [true, false]) await ended(call, (await make('/devices/jobs', { ...move, dryRun })).id);
  for (const serialNumber of ['RS-0020', 'CM-0020']) {
    const { accountId } = await call<{ accountId: string }>('GET', '/v1/profile/me');
    const path = `/v1/devices?accountId=${accountId}&serialNumber=${serialNumber}`;
    const { devices } = await call<{ devices: List<MadeEntity> }>('GET', path);
    for (const { id, version } of devices.results)
      await call('DELETE', `/v1/devices/${id}`, undefined, { etag: version });
  }
}

/** Some of all products, and none that is in the trash: those are the twentieth of their kind. */
function spread(devices: FleetDevice[], count: number): FleetDevice[] {
  const every = Math.max(1, Math.floor(devices.length / count));
  return devices.filter(({ serialNumber }, at) => at % every === 0 && !serialNumber.endsWith('-0020')).slice(0, count);
}

/** Connects devices. They install firmware that is offered, and answer commands. */
async function goOnline({ mqttPort }: FleetOptions, devices: FleetDevice[]): Promise<Online[]> {
  const clients: Online[] = [];
  let offers = 0;
  await each(devices, 8, async (device, at) => {
    const server = { protocol: 'mqtt', host: '127.0.0.1', port: mqttPort } as const;
    const client = await mqtt.connectAsync({ ...server, username: device.id, password: device.secret });
    // It comes when the server has ended; the client tries again until it is closed.
    client.on('error', () => {});
    const root = device.topics.slice(0, device.topics.lastIndexOf('/'));
    client.on('message', (topic, payload) => {
      const said = JSON.parse(payload.toString());
      if (topic.endsWith('/_commands')) answerCommand(client, root, said);
      else if (topic.endsWith('/_firmware')) offers += install(client, root, said, offers);
    });
    await client.subscribeAsync([`${root}/_firmware`, `${root}/_commands`], { qos: 1 });
    const severity = at % 11 === 10 ? 'warning' : 'notice';
    const message = severity === 'warning' ? 'Battery below 3.2 V' : 'Sensor calibrated';
    await client.publishAsync(`${root}/_log`, JSON.stringify({ severity, message }), { qos: 1 });
    clients.push({ client, device, at });
  });
  return clients;
}

function answerCommand(client: MqttClient, root: string, { id, name }: { id: string; name: string }): void {
  if (name === 'identify') return;
  client.publish(`${root}/_commands/replies`, JSON.stringify({ id, status: 'succeeded', result: 'done' }), { qos: 1 });
}

interface Offer {
  firmwareVersion: string;
  files: unknown[];
}

/** Of every eight devices two take their time, and one fails, so that a rollout shows all its states. How many were offered one. */
function install(client: MqttClient, root: string, { firmwareVersion, files }: Offer, before: number): number {
  if (!files?.length) return 0;
  const report = (state: string, more = {}) =>
    client.publish(`${root}/_firmware/status`, JSON.stringify({ state, firmwareVersion, ...more }), { qos: 1 });
  report('downloading');
  if (before % 4 === 3) return 1;
  if (before % 8 === 4) report('failed', { code: -2, message: 'not enough space' });
  else report('succeeded');
  return 1;
}

async function startRollout(call: Call, make: Make, accountId: string, deviceTemplateId: string): Promise<void> {
  const content = randomBytes(firmwareBytes);
  const body = { name: 'Room sensor firmware', firmwareVersion: '2.4.0', deviceTemplateId };
  const { id } = await make('/firmware/packages', { ...body, description: 'Fewer false alarms' });
  const digest = `sha-256=${createHash('sha256').update(content).digest('base64')}`;
  const path = `/v1/firmware/packages/${id}/files/app.bin?revision=2.4.0`;
  const headers = { 'content-type': 'application/octet-stream', digest };
  const { firmwarePackage } = await call<{ firmwarePackage: MadeEntity }>('PUT', path, content, headers);
  await call('POST', `/v1/firmware/packages/${id}/publish`, undefined, { etag: firmwarePackage.version });
  await make('/firmware/packages', { ...body, firmwareVersion: '2.5.0-beta' });
  await call('POST', '/v1/firmware/rollouts', {
    accountId,
    firmwarePackageId: id,
    target: { filter: { deviceTemplateId } },
    stages: [{ percent: 20, pauseSeconds: 3600 }, { percent: 100 }],
    maxFailurePercent: 50,
  });
}
