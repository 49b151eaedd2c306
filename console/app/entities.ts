/** What the API does with every kind of thing: a slice of a list, one, a new one, a change, a deletion and what takes it back. */
import type { paths } from '../api-types.d.ts';
import { api, unwrap, type Whole } from './api.ts';
import { accountId } from './session.ts';

/** Where each kind is. An answer has one property: the thing, or the list. */
export const entityPaths = {
  accountUser: 'account-users',
  application: 'applications',
  bridge: 'bridges',
  certificateAuthority: 'access/certificate-authorities',
  channelTemplate: 'channels/templates',
  customField: 'devices/custom-fields',
  device: 'devices',
  deviceTemplate: 'devices/templates',
  endUser: 'end-users',
  enrollmentGroup: 'enrollment-groups',
  firmwarePackage: 'firmware/packages',
  firmwareRollout: 'firmware/rollouts',
  fleet: 'fleets',
  identityProvider: 'identity-providers',
  job: 'provisioning/jobs',
  mqttCertificate: 'access/mqtt-certificates',
  organization: 'organizations',
  role: 'roles',
  token: 'tokens',
  verification: 'provisioning/verifications',
} as const;
export type Kind = keyof typeof entityPaths;

/** Rows of a page. */
export const pageSize = 50;

export interface Slice<T> {
  results?: T[];
  meta?: { count: number };
}
/** What says which one, and which version of it a change is of. */
export interface Version {
  id: string;
  version?: string;
}
export type Undo = () => Promise<unknown>;

type Path<K extends Kind> = `/api/v1/${(typeof entityPaths)[K]}`;
type Operation<P, V> = P extends keyof paths ? (V extends keyof paths[P] ? paths[P][V] : never) : never;
type Json<T> = T extends { content: { 'application/json': infer J } } ? J : never;
type Answer<O> = O extends { responses: { 200: infer R } } ? Json<R> : never;
type Inside<T> = T extends unknown ? T[keyof T] : never;
type Query<O> = O extends { parameters: { query?: infer Q } } ? Partial<NonNullable<Q>> : never;
type Sent<O> = O extends { requestBody?: infer B } ? Json<NonNullable<B>> : never;
type OfAccount<T> = T extends unknown ? { [P in keyof T as P extends 'accountId' ? never : P]: T[P] } : never;

/** One of a kind, as a list has it. */
export type Entity<K extends Kind> =
  Inside<Whole<Answer<Operation<Path<K>, 'get'>>>> extends Slice<infer T> ? T : never;
export type Body<K extends Kind> = OfAccount<Sent<Operation<Path<K>, 'post'>>>;
export type Changes<K extends Kind> = Sent<Operation<`${Path<K>}/{id}`, 'put'>>;

type Ask = (path: string, init: object) => Promise<{ data?: object; response: Response }>;
const verbs = api as unknown as Record<'GET' | 'POST' | 'PUT' | 'DELETE', Ask>;

/** @returns what is in the answer. The types are those of the functions below. */
async function ask(verb: keyof typeof verbs, path: string, init: object): Promise<never> {
  return Object.values((await unwrap(verbs[verb](`/api/v1/${path}`, init))) ?? {})[0] as never;
}

const of = ({ id, version }: Version) => ({ path: { id }, header: version === undefined ? {} : { etag: version } });

export function readList<K extends Kind>(
  kind: K,
  page = 1,
  query: Query<Operation<Path<K>, 'get'>> = {} as never,
  signal?: AbortSignal,
): Promise<Slice<Entity<K>>> {
  const asked = { accountId: accountId.value, page, pageSize, ...(query as object) };
  return ask('GET', entityPaths[kind], { params: { query: asked }, signal });
}

export function readOne<K extends Kind>(kind: K, id: string) {
  const answer: Promise<Inside<Answer<Operation<`${Path<K>}/{id}`, 'get'>>>> = ask('GET', `${entityPaths[kind]}/{id}`, {
    params: of({ id }),
  });
  return answer;
}

/** Makes one of the account. */
export function make<K extends Kind>(kind: K, body: Body<K>): Promise<Inside<Answer<Operation<Path<K>, 'post'>>>> {
  return ask('POST', entityPaths[kind], { body: { accountId: accountId.value, ...(body as object) } });
}

export function change<K extends Kind>(kind: K, one: Version, body: Changes<K>) {
  const answer: Promise<Inside<Answer<Operation<`${Path<K>}/{id}`, 'put'>>>> = ask('PUT', `${entityPaths[kind]}/{id}`, {
    params: of(one),
    body,
  });
  return answer;
}

/** @returns what takes the deletion back, where the kind has a trash. */
export async function remove(kind: Kind, one: Version): Promise<Undo> {
  const gone: Version = await ask('DELETE', `${entityPaths[kind]}/{id}`, { params: of(one) });
  return () => recover(entityPaths[kind], gone);
}

/** The trash of a kind is where the kind is, below `trash`. */
export const readTrash = <T extends Version>(path: string, page: number): Promise<Slice<T>> =>
  ask('GET', `trash/${path}`, { params: { query: { accountId: accountId.value, page, pageSize } } });

export const recover = (path: string, one: Version): Promise<unknown> =>
  ask('POST', `trash/${path}/{id}/recover`, { params: of(one) });
