/** Harm that is done with how much an account has: sessions that wait, people of a provider, members, holders of a role. */
import { once } from 'node:events';
import { join } from 'node:path';
import type { IConnectPacket, Packet } from 'mqtt-packet';
import { openSqlite } from '../db/sqlite/open.ts';
import { newId } from '../src/core/ids.ts';
import { copyRows, type StoredValues } from '../test/support/copies.ts';
import { type Attack, again, demand, type Means } from './attack-tools.ts';
import { deviceOf } from './attacks-downlink.ts';
import { type Link, openLink } from './link.ts';

/** Seconds. */
const day = 86_400;
const atOnce = 32;
/** Bytes of a will, nearly as large as a CONNECT may be. */
const willBytes = 15_000;
/** Sessions before the attack counts: more than the default limits on bytes of wills and of filters have room for. */
const sessions = { wills: 12_000, filters: 6000 };
/** The default of SLIPWAY_MQTT_MAX_SUBSCRIPTIONS. */
const filtersOfSession = 200;
/** People behind one request: as many as a group may have. */
const many = 20_000;
const schemaOf = (kind: 'User' | 'Group') => [`urn:ietf:params:scim:schemas:core:2.0:${kind}`];
const groupOf = (displayName: string, members: readonly string[]) => ({
  ...{ schemas: schemaOf('Group'), displayName },
  members: members.map((value) => ({ value })),
});
/** Nothing is asked of an issuer elsewhere. */
const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
const issuer = 'http://127.0.0.1:9';
/** Of the one that the others are copies of. */
const email = 'crowd@bench.example';

export const storedAttacks: Record<string, Attack> = {
  'delayed-wills': {
    shows: `wills of ${willBytes} bytes, delayed by a day, of ${sessions.wills} clients that have gone and of more, 32 at once`,
    run: (means, begun) =>
      leaveSessions(means, sessions.wills, begun, ({ root }) => ({
        will: {
          topic: `${root}/chat`,
          payload: Buffer.alloc(willBytes),
          qos: 1,
          properties: { willDelayInterval: day },
        },
      })),
  },
  'stored-filters': {
    shows: `${filtersOfSession} filters of each of ${sessions.filters} clients that have gone and of more, 32 at once`,
    run: (means, begun) => leaveSessions(means, sessions.filters, begun, () => ({}), subscribe),
  },
  'deleted-provider': {
    shows: `an identity provider with ${many} people that is deleted`,
    env,
    run: async (means, begun) => {
      const { provider } = await makeCrowd(means);
      const { id, version } = provider;
      begun();
      await demand(means, 'DELETE', `/identity-providers/${id}`, { headers: { etag: version } });
    },
  },
  'large-groups': {
    shows: `a group of SCIM that gets ${many} members and loses them, again and again`,
    env,
    run: async (means, begun) => {
      const { scim, people } = await makeCrowd(means);
      const [none, all] = [JSON.stringify(groupOf('Others', [])), JSON.stringify(groupOf('Others', people))];
      const { id } = await scim('POST', '/Groups', none);
      begun();
      await again(1, (_, round) => scim('PUT', `/Groups/${id}?excludedAttributes=members`, round % 2 ? none : all));
    },
  },
  'raised-role': {
    shows: `a role that ${many} people have and that gets one more right`,
    run: async (means, begun) => {
      const { accountId } = means;
      const rights = { device: ['read'] };
      const { role } = await demand<{ role: Entity }>(means, 'POST', '/roles', {
        body: { accountId, name: 'Crowd', scope: 'account', rights },
      });
      const person = { createIdmUser: true, idmUserEmail: email, idmUserPassword: 'a long enough secret' };
      await demand(means, 'POST', '/account-users', { body: { accountId, roleId: role.id, ...person } });
      copyPeople(means, (add, users) => {
        add('identities', { email }, (n) => ({ ...addressed(n), id: users(n), passwordChosenBy: 'other' }));
        add('accountUsers', { roleId: role.id }, (n) => ({ id: newId(accountId), userId: users(n) }));
      });
      begun();
      const body = { rights: { ...rights, bridge: ['read'] } };
      await demand(means, 'PUT', `/roles/${role.id}`, { headers: { etag: role.version }, body });
    },
  },
};

interface Entity {
  id: string;
  version: string;
}

/** Clients that connect once and break off, so many before the attack and more of them while it goes on. */
async function leaveSessions(
  means: Means,
  count: number,
  begun: () => void,
  more: (device: Means['devices'][number]) => Pick<IConnectPacket, 'will'>,
  work?: (link: Link, device: Means['devices'][number]) => Promise<unknown>,
): Promise<void> {
  let left = 0;
  const leave = async () => {
    const device = deviceOf(means, left % means.devices.length);
    const who = { username: device.id, password: device.secret, clientId: `gone ${left}`, level: 5 } as const;
    left += 1;
    const properties = { sessionExpiryInterval: day };
    const link = await openLink({ port: means.mqttPort }, { ...who, more: { properties, ...more(device) } });
    if (link.returnCode === 0) await work?.(link, device);
    link.socket.destroy();
  };
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (left < count) await leave();
    }),
  );
  begun();
  // A service that is busy may end a connection before it says anything.
  await again(atOnce, () => leave().catch(() => undefined));
}

async function subscribe({ socket, send, closed }: Link, { root }: Means['devices'][number]): Promise<void> {
  // A device may subscribe to its channels alone, in several spellings.
  const roots = [root, root.replace('slipway', '+'), root.replace('v1', '+')];
  const subscriptions = Array.from({ length: filtersOfSession }, (_, n) => ({
    topic: `${roots[n % roots.length]}/channel${2 + Math.floor(n / roots.length)}`,
    qos: 1,
  }));
  const answered = once(socket, 'data');
  send({ cmd: 'subscribe', messageId: 1, subscriptions } as Packet);
  await Promise.race([answered, closed]);
}

/** A provider whose people are many, and each an end-user by a group. `scim` asks as the provider. */
async function makeCrowd(means: Means) {
  const { accountId, organizationId } = means;
  const mappings = [{ group: 'All', roleId: 'organization:viewer', organizationId }];
  const post = <T>(path: string, body: object) => demand<T>(means, 'POST', path, { body });
  const { identityProvider: provider } = await post<{ identityProvider: Entity }>('/identity-providers', {
    ...{ accountId, name: 'Crowd', issuer, clientId: 'slipway', mappings },
  });
  const { scimToken } = await post<{ scimToken: { token: string } }>(`/identity-providers/${provider.id}/scim-token`, {
    expiresAt: new Date(Date.now() + day * 1000).toISOString(),
  });
  const headers = { authorization: `Bearer ${scimToken.token}` };
  const scim = (method: string, path: string, body: object | string) =>
    demand<Entity>(means, method, `//scim/v2${path}`, { headers, body });
  const { id } = await scim('POST', '/Users', { schemas: schemaOf('User'), userName: email });
  await scim('POST', '/Groups', groupOf('All', [id]));
  const people = newIds(accountId);
  copyPeople(means, (add, users) => {
    add('identities', { email }, (n) => ({ ...addressed(n), id: users(n) }));
    add('scimUsers', { id }, (n) => ({ id: people[n] as string, userId: users(n), userNameKey: `${n}` }));
    add('scimMembers', { memberId: id }, (n) => ({ memberId: people[n] as string }));
    add('endUsers', { identityProviderId: provider.id }, (n) => ({ id: newId(accountId), userId: users(n) }));
  });
  return { provider, scim, people };
}

type Add = (table: string, where: StoredValues, changes: (n: number) => StoredValues) => void;

/** Writes rows like those that the API has made, which would take it minutes; `users` has the ids of identities. */
function copyPeople({ directory, accountId }: Means, work: (add: Add, users: (n: number) => string) => void): void {
  const users = newIds(accountId);
  const file = openSqlite(join(directory, 'registry.db'));
  work(
    (table, where, changes) => copyRows(file, table, where, many, changes),
    (n) => users[n] as string,
  );
  file.close();
}

function newIds(accountId: string): string[] {
  return Array.from({ length: many }, () => newId(accountId));
}

function addressed(n: number) {
  const address = `${n}@bench.example`;
  return { email: address, emailKey: address };
}
