/** POST /permissions/explain says what HTTP and MQTT then really do. */
import { randomUUID } from 'node:crypto';
import type { MqttClient } from 'mqtt';
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import { type Entity, type Made, nextMessage, present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

interface Principal {
  type: string;
  id: string;
  /** Its token, or the secret of a device. */
  token?: string;
  secret?: string;
}
interface Thing {
  type: string;
  id: string;
  path: string;
}

let service: Service;
let principals: Record<string, Principal>;
let things: Record<string, Thing>;
/** top ── home ── below, and another organization; devices and people in each. */
let organizations: Record<'top' | 'home' | 'below' | 'beside', string>;
let template: Made<'deviceTemplate'>;
const devices: Record<string, { id: string; secret: string }> = {};
let foreign: { accountId: string; token: string };

t.before(async () => {
  service = await sharedService(t);
  const top = await service.organization();
  const home = await service.organization({ parentId: top.id });
  const below = await service.organization({ parentId: home.id });
  const beside = await service.organization({ parentId: top.id });
  organizations = { top: top.id, home: home.id, below: below.id, beside: beside.id };
  template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  for (const [name, organizationId] of Object.entries({ ...organizations, nowhere: null })) {
    const made = await service.device({ deviceTemplateId: template.id, organizationId });
    devices[name] = { id: made.device.id, secret: made.secret };
  }
  const gone = await service.device({ deviceTemplateId: template.id, organizationId: below.id });
  await trash(`/devices/${gone.device.id}`, 'device');
  devices.gone = { id: gone.device.id, secret: gone.secret };
  const end = await service.organization({ parentId: below.id });
  await trash(`/organizations/${end.id}`, 'organization');

  const person = await service.endUser(home.id);
  const neighbour = await service.endUser(beside.id);
  const former = await service.endUser(beside.id);
  await trash(`/end-users/${former.endUser.id}`, 'endUser');
  const backEnd = await program('backEnd');
  const app = await program('endUserApp');
  const list = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`);
  const [admin] = list.accountUsers.results;
  principals = {
    admin: { type: 'user', id: admin.userId, token: service.admin },
    accountUser: { type: 'accountUser', id: admin.id, token: service.admin },
    person: { type: 'user', id: person.endUser.userId, token: person.token },
    'end-user': { type: 'endUser', id: person.endUser.id, token: person.token },
    newcomer: { type: 'user', id: former.endUser.userId, token: former.token },
    'back-end': { type: 'application', ...backEnd },
    app: { type: 'application', ...app },
    device: { type: 'device', id: devices.home?.id ?? '', secret: devices.home?.secret ?? '' },
  };
  const templates = (kind: string) => service.ok('GET', `/api/v1/${kind}/templates?accountId=${service.accountId}`);
  const [users] = (await templates('end-users')).endUserTemplates.results;
  const [groups] = (await templates('organizations')).organizationTemplates.results;
  const fields = '/devices/custom-fields';
  const field = await service.create(fields, 'deviceField', {
    deviceTemplateId: template.id,
    name: 'colour',
    fieldType: 'string',
  });
  const firmware = await service.create('/firmware/packages', 'firmwarePackage', {
    deviceTemplateId: template.id,
    name: 'Thermometer',
    firmwareVersion: '2.0.0',
  });
  things = {
    ...of('device', '/devices', { ...devices }),
    ...of('organization', '/organizations', {
      ...Object.fromEntries(Object.entries(organizations).map(([name, id]) => [name, { id }])),
      gone: end,
    }),
    ...of('endUser', '/end-users', { person: person.endUser, neighbour: neighbour.endUser, gone: former.endUser }),
    ...of('deviceTemplate', '/devices/templates', { one: template }),
    ...of('endUserTemplate', '/end-users/templates', { one: users }),
    ...of('organizationTemplate', '/organizations/templates', { one: groups }),
    ...of('channelTemplate', '/channels/templates', {
      one: present(template.channelTemplates.find((one) => one.name === 'chat')),
    }),
    ...of('customField', fields, { one: field }),
    ...of('accountUser', '/account-users', { one: admin }),
    ...of('application', '/applications', { one: { id: backEnd.id } }),
    ...of('firmwarePackage', '/firmware/packages', { one: firmware }),
  };
  const { accountId, admin: token } = await service.account();
  foreign = { accountId, token };
});

const of = (type: string, path: string, ones: Record<string, { id: string }>): Record<string, Thing> =>
  Object.fromEntries(
    Object.entries(ones).map(([name, { id }]) => [`${type} ${name}`, { type, id, path: `/api/v1${path}/${id}` }]),
  );

async function trash(path: string, _wrapper: string): Promise<void> {
  const answer = await service.ok('GET', `/api/v1${path}`);
  const { version } = Object.values(answer)[0] as Entity;
  await service.ok('DELETE', `/api/v1${path}`, { headers: { etag: version } });
}

async function program(kind: string): Promise<{ id: string; token: string }> {
  const { id, appToken } = await service.create('/applications', 'application', { name: kind, kind });
  const body = { appId: id, appToken, accountId: service.accountId };
  return { id, token: (await service.ok('POST', '/api/v1/auth/login-application', { body, token: null })).jwt };
}

const ask = ({ type, id }: Pick<Principal, 'type' | 'id'>, question: object, token = service.admin) =>
  service.http('POST', '/api/v1/permissions/explain', { body: { principal: { type, id }, ...question }, token });
const explained = async (name: string, question: object) => {
  const { status, body } = await ask(principals[name] as Principal, question);
  if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`);
  // test/registry/roles.test.ts looks at the role that it names.
  const { role: _, ...decision } = body;
  return decision;
};

/** Whether HTTP lets the caller pass; a stale version is found only by who may change the entity. */
async function httpAllows(token: string, action: string, { type, path }: Thing): Promise<boolean> {
  const { accountId } = service;
  const bodies: Record<string, object> = {
    endUser: { organizationId: organizations.below },
    customField: { accountId, deviceTemplateId: template.id, name: 'colour', fieldType: 'string' },
  };
  const method = { read: 'GET', update: 'PUT', delete: 'DELETE' }[action] ?? '';
  const body = action === 'update' ? { body: bodies[type] ?? {} } : {};
  const headers: Record<string, string> = method === 'GET' ? {} : { etag: 'zzz' };
  const { status } = await service.http(method, path, { token, headers, ...body });
  if (![200, 403, 404, 405, 410, 412].includes(status)) throw new Error(`${method} ${path} answered ${status}`);
  return status === 200 || status === 412;
}

t.test('what it says of entities is what HTTP does', async (t) => {
  for (const [who, { token }] of Object.entries(principals)) {
    // An account user has the token of its identity.
    if (token === undefined || who === 'accountUser') continue;
    const differences: string[] = [];
    for (const [what, thing] of Object.entries(things))
      for (const action of ['read', 'update', 'delete']) {
        // An application is deleted without an etag: asking would do it.
        if (thing.type === 'application' && action === 'delete') continue;
        const { allowed, rule } = await explained(who, { action, entity: { type: thing.type, id: thing.id } });
        const really = await httpAllows(token, action, thing);
        if (allowed !== really) differences.push(`${action} ${what}: ${rule}, but ${really}`);
      }
    t.strictSame(differences, [], who);
  }
});

t.test('what it says of making something is what HTTP does', async (t) => {
  const { accountId } = service;
  const wanted: Record<string, (id: string | null) => [string, object]> = {
    device: (organizationId) => ['/devices', { serialNumber: 'made', organizationId }],
    endUser: (organizationId) => [
      '/end-users',
      { organizationId, createIdmUser: true, idmUserEmail: `${service.unique('made').replace(' ', '')}@example.com` },
    ],
    organization: (parentId) => ['/organizations', { name: service.unique('made'), parentId }],
    deviceTemplate: () => ['/devices/templates', { name: service.unique('made') }],
  };
  const places: Record<string, Array<string | null>> = {
    device: [organizations.home, organizations.beside, null],
    endUser: [organizations.home, organizations.below, organizations.top],
    organization: [organizations.home, organizations.beside, null],
    deviceTemplate: [null],
  };
  const groups = things['endUserTemplate one']?.id;
  for (const [who, { token }] of Object.entries(principals)) {
    if (token === undefined) continue;
    for (const [type, make] of Object.entries(wanted))
      for (const place of places[type] ?? []) {
        const { allowed, rule } = await explained(who, { action: 'create', entity: { type, id: place } });
        const [path, body] = make(place);
        const first = who === 'newcomer' && type === 'organization' ? { endUserTemplateId: groups } : {};
        if (who === 'newcomer' && allowed) {
          t.equal(rule, 'first organization');
          continue;
        }
        const { status } = await service.http('POST', `/api/v1${path}`, {
          token,
          body: { accountId, ...body, ...first },
        });
        t.equal(allowed, status === 200, `${who}, ${type} in ${place}: ${rule}, ${status}`);
      }
  }
});

t.test('what it says of topics is what the broker does', async (t) => {
  const channels = ['chat', '_log', '_rejected', '_set/fields', '_updates/fields', 'none'];
  const named = Object.values(devices).flatMap(({ id }) => channels.map((channel) => service.topic(id, channel)));
  const odd = [
    service.topic(randomUUID(), 'chat'),
    service.topic(devices.home?.id ?? '', 'chat').replace(service.accountId, foreign.accountId),
    'somewhere/else',
    '$SYS/heartbeat',
  ];
  const filters = [
    '#',
    '+/+/+/d/+/chat',
    service.topic('+', '+/x/y'),
    service.topic(devices.home?.id ?? '', '#'),
    service.topic(devices.beside?.id ?? '', '#'),
    `${service.topicRoot}/${foreign.accountId}/#`,
  ];
  const watcher = await service.connect({ jwt: service.admin });
  const heard = new Map<string, string>();
  watcher.on('message', (topic, payload) => heard.set(payload.toString(), topic));
  await watcher.subscribeAsync('#');
  for (const who of ['admin', 'person', 'back-end', 'device']) {
    const client = await connect(principals[who] as Principal);
    const said: Array<{ topic: string; payload: string; allowed: boolean; rule: string }> = [];
    for (const topic of [...named, ...odd]) {
      const { allowed, rule } = await explained(who, { action: 'publish', topic });
      const payload = JSON.stringify({ state: { firmwareVersion: service.unique('v') } });
      await client.publishAsync(topic, payload, { qos: 1 });
      said.push({ topic, payload, allowed, rule });
    }
    const marker = nextMessage(watcher, (_, payload) => payload.toString() === `end of ${who}`);
    await watcher.publishAsync(service.topic(devices.top?.id ?? '', 'chat'), `end of ${who}`, { qos: 1 });
    await marker;
    const differences = said.filter(({ payload, topic, allowed }) => (heard.get(payload) === topic) !== allowed);
    t.strictSame(differences, [], `${who} publishes`);
    t.ok(said.some(({ allowed }) => allowed) && said.some(({ allowed }) => !allowed), 'both occur');
    for (const topic of [...named, ...odd, ...filters]) {
      const { allowed, rule } = await explained(who, { action: 'subscribe', topic });
      const [{ qos } = { qos: 128 }] = await client.subscribeAsync(topic).catch(() => [{ qos: 128 }]);
      t.equal(allowed, qos !== 128, `${who} subscribes to ${topic}: ${rule}`);
      if (allowed) await client.unsubscribeAsync(topic);
    }
  }
});

const connect = ({ id, secret, token = '' }: Principal): Promise<MqttClient> =>
  service.connect(secret === undefined ? { jwt: token } : { deviceId: id, secret });

t.test('it names the rule and the way through the organizations', async (t) => {
  const { home, below } = organizations;
  const chat = (name: string) => service.topic(devices[name]?.id ?? '', 'chat');
  const { controlRoot } = service;
  const control = (direction: string) => `${controlRoot}/${devices.home?.id}/${direction}`;
  const entity = (name: string) => ({ type: things[name]?.type, id: things[name]?.id });
  const way = (path: string[]) => ({ allowed: true, rule: 'within an organization', path });
  const no = (rule: string) => ({ allowed: false, rule, path: [] });
  const yes = (rule: string) => ({ allowed: true, rule, path: [] });
  const cases: Array<[string, object, object]> = [
    ['person', { action: 'read', entity: entity('device below') }, way([home, below])],
    ['person', { action: 'update', entity: entity('organization home') }, way([home])],
    ['person', { action: 'publish', topic: chat('below') }, way([home, below])],
    ['end-user', { action: 'subscribe', topic: chat('below') }, way([home, below])],
    ['person', { action: 'create', entity: { type: 'endUser', id: below } }, way([home, below])],
    ['admin', { action: 'read', entity: entity('device nowhere') }, yes('account-wide')],
    ['back-end', { action: 'publish', topic: chat('beside') }, yes('account-wide')],
    ['device', { action: 'publish', topic: chat('home') }, yes('own channel')],
    ['device', { action: 'publish', topic: control('svc') }, yes('control topic')],
    ['device', { action: 'subscribe', topic: control('cln') }, yes('control topic')],
    ['device', { action: 'subscribe', topic: control('svc') }, no('no channel topic')],
    ['admin', { action: 'subscribe', topic: control('cln') }, no('no channel topic')],
    ['device', { action: 'update', entity: entity('device home') }, yes('own device')],
    ['device', { action: 'update', entity: entity('device below') }, no('outside the reach')],
    ['device', { action: 'read', entity: entity('device home') }, no('role may not do this')],
    ['device', { action: 'publish', topic: chat('below') }, no('outside the reach')],
    ['device', { action: 'publish', topic: chat('home').replace('chat', '_rejected') }, no('service channel')],
    ['device', { action: 'publish', topic: chat('home').replace('chat', 'none') }, no('no such channel')],
    ['person', { action: 'publish', topic: chat('home').replace('chat', '_log') }, no('service channel')],
    ['person', { action: 'publish', topic: chat('gone') }, no('in the trash')],
    ['person', { action: 'read', entity: entity('device gone') }, no('in the trash')],
    ['person', { action: 'read', entity: entity('device beside') }, no('outside the reach')],
    ['person', { action: 'delete', entity: entity('organization home') }, no('own organization')],
    ['person', { action: 'delete', entity: entity('device home') }, no('role may not do this')],
    ['admin', { action: 'update', entity: entity('accountUser one') }, yes('account-wide')],
    [
      'admin',
      { action: 'create', entity: { type: 'device', id: things['organization gone']?.id } },
      no('in the trash'),
    ],
    ['newcomer', { action: 'subscribe', topic: '#' }, no('role may not do this')],
    ['app', { action: 'publish', topic: chat('home') }, no('role may not do this')],
    ['person', { action: 'subscribe', topic: '#' }, yes('wildcard')],
    ['person', { action: 'subscribe', topic: 'other/root/#' }, no('matches nothing in reach')],
    ['person', { action: 'subscribe', topic: 'a#' }, no('malformed topic')],
    ['admin', { action: 'publish', topic: 'other/topic' }, no('no channel topic')],
    ['admin', { action: 'publish', topic: service.topic(randomUUID(), 'chat') }, no('no such device')],
    [
      'admin',
      { action: 'publish', topic: chat('home').replace(service.accountId, foreign.accountId) },
      no('other account'),
    ],
  ];
  for (const [who, question, expected] of cases)
    t.strictSame(await explained(who, question), expected, `${who}: ${JSON.stringify(question)}`);
  const gone = { type: 'endUser', id: things['endUser gone']?.id ?? '' };
  const { body } = await ask(gone, { action: 'read', entity: entity('device home') });
  t.strictSame(body, no('principal in the trash'));
  const deleted = { type: 'device', id: devices.gone?.id ?? '' };
  t.match(await ask(deleted, { action: 'publish', topic: chat('gone') }), { body: no('principal in the trash') });
});

t.test('only admins and back-ends ask, and another account looks as if it did not exist', async (t) => {
  const question = { action: 'read', entity: { type: 'device', id: devices.home?.id } };
  const person = principals.person as Principal;
  const asks = (token: string, principal: Pick<Principal, 'type' | 'id'>, more: object = question) =>
    ask(principal, more, token);
  for (const who of ['person', 'newcomer', 'app'])
    t.match(await asks(principals[who]?.token ?? '', person), { status: 403, body: { error: { code: 21 } } }, who);
  t.match(await asks(principals['back-end']?.token ?? '', person), { status: 200 });
  t.match(await service.http('POST', '/api/v1/permissions/explain', { token: null, body: {} }), { status: 401 });
  const nothing = { status: 404, body: { error: { code: 100 } } };
  const list = await service.ok('GET', `/api/v1/account-users?accountId=${foreign.accountId}`, {
    token: foreign.token,
  });
  const [theirAdmin] = list.accountUsers.results;
  const theirs = { type: 'accountUser', id: theirAdmin.id };
  for (const principal of Object.values(principals))
    t.match(await asks(foreign.token, principal), nothing, principal.type);
  for (const { type, id } of Object.values(things)) {
    const of = { action: 'read', entity: { type, id } };
    t.match(await asks(foreign.token, theirs, of), nothing, `their admin asks of a ${type}`);
  }
  const into = { action: 'create', entity: { type: 'device', id: organizations.home } };
  t.match(await asks(foreign.token, theirs, into), nothing);
  const { body } = await asks(foreign.token, theirs, {
    action: 'publish',
    topic: service.topic(devices.home?.id ?? '', 'chat'),
  });
  t.match(body, { allowed: false, rule: 'other account' });
  const under = service.topic(devices.home?.id ?? '', 'chat').replace(service.accountId, foreign.accountId);
  t.match(await asks(foreign.token, theirs, { action: 'publish', topic: under }), { body: { rule: 'no such device' } });
});

t.test('half a question is 400', async (t: Test) => {
  const admin = principals.admin as Principal;
  const id = devices.home?.id;
  for (const question of [
    { action: 'publish' },
    { action: 'publish', entity: { type: 'device', id } },
    { action: 'publish', topic: 'x', entity: { type: 'device', id } },
    { action: 'read' },
    { action: 'read', topic: 'x' },
    { action: 'read', topic: 'x', entity: { type: 'device', id } },
    { action: 'fly', entity: { type: 'device', id } },
    { action: 'read', entity: { type: 'unicorn', id } },
    { action: 'create', entity: { type: 'endUser' } },
    { action: 'create', entity: { type: 'deviceTemplate', id: organizations.home } },
  ])
    t.match(await ask(admin, question), { status: 400, body: { error: { code: 106 } } }, JSON.stringify(question));
  t.match(await ask(admin, { action: 'read', entity: { type: 'device' } }), { status: 404 });
});

t.test('an identity without an end-user makes its first organization, and then acts within it', async (t) => {
  const { token } = principals.newcomer as Principal;
  const question = { action: 'create', entity: { type: 'organization', id: null } };
  t.match(await explained('newcomer', question), { allowed: true, rule: 'first organization' });
  const endUserTemplateId = things['endUserTemplate one']?.id;
  const body = { accountId: service.accountId, name: 'first', endUserTemplateId };
  const { organization } = await service.ok('POST', '/api/v1/organizations', { token, body });
  t.match(await explained('newcomer', question), { allowed: false, rule: 'outside the reach' });
  const below = { action: 'create', entity: { type: 'organization', id: organization.id } };
  t.match(await explained('newcomer', below), { allowed: true, path: [organization.id] });
});

t.test('an identity without an end-user makes three organizations in its life', async (t) => {
  const { endUser, token } = await service.endUser((await service.organization()).id);
  const question = { action: 'create', entity: { type: 'organization', id: null } };
  const asked = () => ask({ type: 'user', id: endUser.userId }, question);
  const body = {
    accountId: service.accountId,
    name: 'own',
    endUserTemplateId: things['endUserTemplate one']?.id,
  };
  await trash(`/end-users/${endUser.id}`, 'endUser');
  for (let made = 0; made < 3; made += 1) {
    t.match((await asked()).body, { rule: 'first organization' });
    const { organization } = await service.ok('POST', '/api/v1/organizations', { token, body });
    await trash(`/end-users/${organization.defaultEndUser.id}`, 'endUser');
  }
  t.strictSame((await asked()).body, {
    allowed: false,
    rule: 'first organizations used up',
    path: [],
  });
  const fourth = await service.http('POST', '/api/v1/organizations', { token, body });
  t.match(fourth, { status: 403, body: { error: { code: 21 } } });
});

t.end();
