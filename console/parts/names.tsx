/** Names of things by their ids: what is shown asks for them, fifty in one request. */
import { type Signal, signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { api, unwrap } from '../app/api.ts';
import { can, me } from '../app/session.ts';

const kinds = {
  device: { path: '/api/v1/devices/', wrapper: 'device', field: 'serialNumber' },
  organization: { path: '/api/v1/organizations/', wrapper: 'organization', field: 'name' },
  deviceTemplate: { path: '/api/v1/devices/templates/', wrapper: 'deviceTemplate', field: 'name' },
  application: { path: '/api/v1/applications/', wrapper: 'application', field: 'name' },
  bridge: { path: '/api/v1/bridges/', wrapper: 'bridge', field: 'name' },
  role: { path: '/api/v1/roles/', wrapper: 'role', field: 'name' },
  firmwarePackage: { path: '/api/v1/firmware/packages/', wrapper: 'firmwarePackage', field: 'name' },
  identityProvider: { path: '/api/v1/identity-providers/', wrapper: 'identityProvider', field: 'name' },
  certificateAuthority: {
    path: '/api/v1/access/certificate-authorities/',
    wrapper: 'certificateAuthority',
    field: 'name',
  },
  /** A login: it is asked for in another way than the others. */
  identity: { path: '', wrapper: '', field: '' },
} as const;
type Kind = keyof typeof kinds;
export const isNamedKind = (kind: string): kind is Kind => kind in kinds;

/** Requests that one batch takes. */
const batchSize = 50;
const maxKept = 5000;
/** Milliseconds until a name is asked for again. */
const keptFor = 60_000;

interface Name {
  kind: Kind;
  id: string;
  asked: number;
  text: Signal<string | undefined>;
}
const names = new Map<string, Name>();
let wanted: Name[] = [];

// Another person may have other rights.
me.subscribe((person) => person ?? names.clear());

/** The name of a thing, undefined until it is known, empty for what is out of reach. It is read where it is shown. */
export function nameOf(kind: Kind, id: string): string | undefined {
  let name = names.get(id);
  if (!name) {
    name = { kind, id, asked: 0, text: signal(undefined) };
    names.set(id, name);
    for (const oldest of names.keys()) {
      if (names.size <= maxKept) break;
      names.delete(oldest);
    }
  }
  if (!can('read', kind === 'identity' ? 'accountUser' : kind)) return '';
  if (Date.now() - name.asked > keptFor) {
    name.asked = Date.now();
    wanted.push(name);
    if (wanted.length === 1) queueMicrotask(ask);
  }
  return name.text.value;
}

function ask(): void {
  const all = wanted;
  wanted = [];
  for (let from = 0; from < all.length; from += batchSize) askFor(all.slice(from, from + batchSize)).catch(() => {});
}

async function askFor(some: readonly Name[]): Promise<void> {
  const people = some.filter(({ kind }) => kind === 'identity');
  if (people.length > 0) await askForPeople(people);
  const things = some.filter(({ kind }) => kind !== 'identity');
  if (things.length > 0) await askForThings(things);
}

async function askForPeople(some: readonly Name[]): Promise<void> {
  const userIds = some.map(({ id }) => id);
  const { users } = await unwrap(api.POST('/api/v1/users/batch', { body: { userIds } }));
  const emails = new Map(users.map(({ userId, emailAddress }) => [userId, emailAddress]));
  for (const { id, text } of some) text.value = emails.get(id) ?? '';
}

async function askForThings(some: readonly Name[]): Promise<void> {
  const requests = some.map(({ kind, id }) => ({ method: 'GET' as const, path: `${kinds[kind].path}${id}` }));
  const answers: unknown = await unwrap(api.POST('/api/v1/batch', { body: { requests } }));
  for (const [at, { kind, text }] of some.entries()) {
    const { wrapper, field } = kinds[kind];
    const entity = (answers as Record<string, Record<string, string> | undefined>[])[at]?.[wrapper];
    text.value = entity?.[field] ?? '';
  }
}

/** `otherwise` stands for what has no name to show. */
export function NameOf({
  kind,
  id,
  otherwise = '–',
}: {
  kind: Kind;
  id: string | null | undefined;
  otherwise?: ComponentChildren;
}) {
  const name = id ? nameOf(kind, id) : '';
  if (name === undefined) return <span aria-busy="true">…</span>;
  return <>{name ? <bdi>{name}</bdi> : otherwise}</>;
}
