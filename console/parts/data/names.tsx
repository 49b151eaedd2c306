/** Names of things by their ids: what is shown asks for them, fifty in one request. */
import { type Signal, signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../../app/api.ts';
import { entityPaths } from '../../app/entities.ts';
import { can, me } from '../../app/session.ts';
import { texts } from '../../words.ts';

/** Kinds that have a name; logins are asked for in another way than the others. */
const kinds = [
  'application',
  'bridge',
  'certificateAuthority',
  'device',
  'deviceTemplate',
  'firmwarePackage',
  'fleet',
  'identity',
  'identityProvider',
  'organization',
  'role',
] as const;
type Kind = (typeof kinds)[number];
export const isNamedKind = (kind: string): kind is Kind => kinds.some((one) => one === kind);

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
  const requests = some.map(({ kind, id }) => ({ method: 'GET' as const, path: `/api/v1/${pathOf(kind)}/${id}` }));
  const answers = Object.values(await unwrap(api.POST('/api/v1/batch', { body: { requests } })));
  for (const [at, { text }] of some.entries()) {
    const [entity] = Object.values((answers[at] ?? {}) as Record<string, { serialNumber?: string; name?: string }>);
    text.value = entity?.serialNumber ?? entity?.name ?? '';
  }
}

const pathOf = (kind: Kind) => (kind === 'identity' ? '' : entityPaths[kind]);

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

/** Things that have a page, and where it is. */
const pages = { device: 'devices', organization: 'organizations', deviceTemplate: 'products', fleet: 'fleets' };

/** The name of a thing, which leads to its page, or to a `part` of it. */
export function NameLink({
  kind,
  id,
  part = '',
  otherwise = <code>{id}</code>,
}: {
  kind: keyof typeof pages;
  id: string | null | undefined;
  part?: string;
  otherwise?: ComponentChildren;
}) {
  if (!id) return <span class="soft">{texts.none}</span>;
  return (
    <Link href={`/${pages[kind]}/${id}${part}`}>
      <NameOf kind={kind} id={id} otherwise={otherwise} />
    </Link>
  );
}
