/** People with roles, and random rights. */
import { largestRights, type Rights, type RoleScope } from '../../src/core/rights.ts';
import type { Service } from './service.ts';

/** Numbers from 0 up to 1 that a seed repeats. */
export function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Each right of a scope with this probability; about devices half of them. */
export function randomRights(scope: RoleScope, random: () => number, probability = random()): Rights {
  const all = Object.entries(largestRights[scope]) as Array<[string, readonly string[]]>;
  const chosen = all.map(([kind, actions]) => [
    kind,
    actions.filter(() => random() < (kind === 'device' ? 0.5 : probability)),
  ]);
  return Object.fromEntries(chosen.filter(([, actions]) => actions?.length));
}

export interface Account {
  id: string;
  userId: string;
  token: string;
  version: string;
}

/** An account user who is logged in. */
export async function accountUser(service: Service, body: object = {}, token = service.admin): Promise<Account> {
  const email = `${service.unique('colleague').replace(' ', '')}@example.com`;
  const password = 'a long enough secret';
  const person = { createIdmUser: true, idmUserEmail: email, idmUserPassword: password };
  const { id, userId, version } = await service.create('/account-users', 'accountUser', { ...person, ...body }, token);
  return { id, userId, version, token: (await service.loginAs(email, password)).jwt };
}

/** A back-end that is logged in. */
export async function backEnd(
  service: Service,
  body: object = {},
  token = service.admin,
): Promise<Omit<Account, 'userId'>> {
  const made = { name: service.unique('Program'), kind: 'backEnd', ...body };
  const { id, appToken, version } = await service.create('/applications', 'application', made, token);
  const login = { appId: id, appToken, accountId: service.accountId };
  const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', { token: null, body: login });
  return { id, version, token: jwt };
}

/** A role of the account. */
export function role(service: Service, scope: RoleScope, rights: Rights, token = service.admin) {
  return service.create('/roles', 'role', { name: service.unique('Role'), scope, rights }, token);
}
