/** One search for all that has a name: at most twenty hits of every kind that the caller may read, within its reach. */
import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { EntityTable } from '../../db/registry/records/by-table.ts';
import { Id, Nullable, oneOf } from '../../db/registry/records/columns.ts';
import { contains } from '../../db/registry/text.ts';
import { fold } from '../../db/sqlite/fold.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import { invalid } from '../core/errors.ts';
import { readTyped } from '../core/formats/crockford.ts';
import { findUnstorable, unstorable } from '../core/formats/unstorable.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { allOf } from '../entity/list.ts';
import { condition, inReach } from '../entity/list-filters.ts';
import type { App } from '../http/app.ts';
import { nameIgnored } from '../http/ignored-names.ts';
import type { RegistryContext } from './context.ts';
import { hashOfCode, isCode } from './credentials/association-codes.ts';
import { type FoundDevice, findDevices } from './devices/search.ts';

const maxHits = 20;
/** Of each kind besides devices, and of all these together: devices are what people look for most. */
const maxOfKind = 3;
const maxOthers = 10;
/** Beginnings of ids that are shorter would find what nobody has meant. */
const shortestId = 4;

const types = [
  'device',
  'organization',
  'endUser',
  'accountUser',
  'deviceTemplate',
  'firmwarePackage',
  'application',
  'bridge',
] as const;
type HitType = (typeof types)[number];

const Hit = Type.Object({
  type: oneOf(types),
  id: Id,
  name: Type.String({ description: 'Of a device, its serial number; of a person without a name, the email address.' }),
  detail: Nullable(
    Type.String({ description: 'The name of a device, the email address of a person, the version of a package.' }),
  ),
  match: Type.Optional(
    Type.String({ description: 'What was found of a device if it is none of these: another field, as `room: A 12`.' }),
  ),
  organizationId: Nullable(Type.String({ ...Id, description: 'Where a device or an end-user is.' })),
});
type Hit = Static<typeof Hit>;

const searchQuery = Type.Object({
  accountId: Type.String(),
  q: Type.String({ minLength: 1, maxLength: 255, description: 'Spaces around it do not count.' }),
});
const searchAnswer = Type.Object(
  { hits: Type.Array(Hit, { maxItems: maxHits }) },
  { description: 'Exact ids, serial numbers and names first.' },
);

/** How a kind is found: what its hits show, and the texts that are searched. */
interface Kind {
  type: Exclude<HitType, 'device'>;
  table: EntityTable;
  name: RawBuilder<string>;
  detail: RawBuilder<string | null>;
  texts: RawBuilder<unknown>[];
  /** The column of its place, where end-users may reach it. */
  reach?: 'id' | 'organizationId';
}

const none = sql<null>`null`;
const field = (name: string) => sql<string | null>`json_extract("fields", ${`$.${name}`})`;
const ofPerson = (column: string) =>
  sql<string | null>`(select ${sql.ref(column)} from "identities" as p where p."id" = "userId")`;
const named = (type: Kind['type'], table: EntityTable, detail: Kind['detail'] = none): Kind => {
  const name = sql<string>`"name"`;
  return { type, table, name, detail, texts: [name] };
};
const person = ['email', 'name', 'firstName', 'lastName'].map(ofPerson);

const kinds: readonly Kind[] = [
  { ...named('organization', 'organizations'), reach: 'id' },
  {
    type: 'endUser',
    table: 'endUsers',
    name: sql`coalesce(${field('name')}, ${ofPerson('name')}, ${ofPerson('email')}, ${field('emailAddress')}, "id")`,
    detail: sql`coalesce(${ofPerson('email')}, ${field('emailAddress')})`,
    texts: [field('name'), field('emailAddress'), ...person],
    reach: 'organizationId',
  },
  {
    type: 'accountUser',
    table: 'accountUsers',
    name: sql`coalesce(${ofPerson('name')}, ${ofPerson('email')})`,
    detail: ofPerson('email'),
    texts: person,
  },
  named('deviceTemplate', 'deviceTemplates'),
  {
    ...named('firmwarePackage', 'firmwarePackages', sql`"firmwareVersion"`),
    texts: [sql`"name"`, sql`"firmwareVersion"`],
  },
  named('application', 'applications', sql`"kind"`),
  named('bridge', 'bridges', sql`"kind"`),
];

/** GET /search. */
export function searchRoutes(app: App, ctx: RegistryContext): void {
  app.get(
    '/search',
    {
      // Stations and devices name what they want; they do not look around.
      config: { right: ['read', 'organization'], errors: ['notFound', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags: ['Search'],
        operationId: 'search',
        summary: 'Find anything by its id, name, serial number, email address, version or other field',
        description: `Finds what the caller may read: ${types.join(', ')}. At most ${maxHits} hits. An id can be cut after ${shortestId} characters. Callers that may make association codes find a device by its whole code. Of other fields the first 100 characters count.`,
        querystring: searchQuery,
        response: { 200: searchAnswer },
      },
    },
    async (request, reply) => {
      const { caller, query } = request;
      ctx.access.demandAccount(caller, query.accountId);
      nameIgnored(request, reply, searchQuery);
      if (findUnstorable(query.q) !== undefined) throw invalid('q', unstorable);
      const text = query.q.trim();
      return { hits: text === '' ? [] : await findAll(ctx, caller, text) };
    },
  );
}

async function findAll(ctx: RegistryContext, caller: Caller, text: string): Promise<Hit[]> {
  const { access } = ctx;
  const readable = kinds.filter(({ type }) => access.may(caller, 'read', type));
  const [devices, ...others] = await Promise.all([
    access.may(caller, 'read', 'device') ? hitsOfDevices(ctx, access.narrow(caller, 'read', 'device'), text) : [],
    ...readable.map((kind) => hitsOf(ctx, access.narrow(caller, 'read', kind.type), kind, text)),
  ]);
  const found = others.flat().slice(0, maxOthers);
  const hits = [...devices.slice(0, maxHits - found.length), ...found];
  const isExact = ({ id, name }: Hit) => id === text.toLowerCase() || fold(name) === fold(text);
  return [...hits.filter(isExact), ...hits.filter((hit) => !isExact(hit))];
}

/** The likeliest first: the code, the whole serial number, its beginning, the id, the name, a part of the serial number, a field. */
async function hitsOfDevices(ctx: RegistryContext, caller: Caller, text: string): Promise<Hit[]> {
  const found = new Map<string, FoundDevice>();
  const find = (filter: Parameters<typeof findDevices>[2], value = text) =>
    findDevices(ctx, caller, filter, { value, limit: maxHits });
  const add = (devices: readonly FoundDevice[]) => {
    for (const device of devices)
      if (ctx.access.reachesDevice(caller, device)) found.set(device.id, found.get(device.id) ?? device);
  };
  const claimed = await idOfCode(ctx, caller, text);
  if (claimed !== undefined) add(await find(['id', 'beginning'], claimed));
  // The order of an index knows upper and lower case. Most serial numbers have upper case, and few people type it.
  const forms = [...new Set([text, text.toUpperCase()])];
  const likely = await Promise.all([
    ...forms.map((form) => find(['serialNumber', 'exact'], form)),
    ...forms.map((form) => find(['serialNumber', 'beginning'], form)),
    ...(isIdPart(text) ? [find(['id', 'beginning'], text.toLowerCase())] : []),
  ]);
  for (const devices of likely) add(devices);
  // After a whole id, the rest would look for what nobody has meant.
  if (found.has(text.toLowerCase())) return shown(found);
  for (const column of ['name', 'serialNumber', 'fields'] as const)
    if (found.size < maxHits) add(await find([column, 'partial']));
  return shown(found);
}

function shown(found: ReadonlyMap<string, FoundDevice>): Hit[] {
  return [...found.values()].map(({ id, serialNumber, name, organizationId, match }) => ({
    type: 'device',
    id,
    name: serialNumber,
    detail: name,
    ...(match !== null && { match }),
    organizationId,
  }));
}

/** The device of an association code, for callers that may make another one: they learn nothing that they could not have made. */
async function idOfCode(
  { access, registry, sealing }: RegistryContext,
  caller: Caller,
  text: string,
): Promise<string | undefined> {
  const code = readTyped(text);
  if (!isCode(code) || !access.may(caller, 'create', 'associationCode')) return undefined;
  // Codes that are stored in a former way are not found: each would cost two slow hashes.
  const ofCode = registry.query
    .selectFrom('associationCodes')
    .select('deviceId')
    .where('codeHash', '=', hashOfCode(sealing, caller.accountId, code))
    .where('accountId', '=', caller.accountId);
  return (await ofCode.executeTakeFirst())?.deviceId;
}

const isIdPart = (text: string) => text.length >= shortestId && /^[0-9a-f-]{1,36}$/i.test(text);

interface FoundRow extends Omit<Hit, 'type' | 'organizationId'> {
  place: string | null;
}

/** Of one of the other kinds: an account has few of them, so all are looked at. */
async function hitsOf(
  { access, readers, registry: { query: db } }: RegistryContext,
  caller: Caller,
  { type, table, name, detail, texts, reach }: Kind,
  text: string,
): Promise<Hit[]> {
  const begins = sql<SqlBool>`instr(lower(${name}), ${fold(text)}) = 1`;
  const matches: Expression<SqlBool>[] = texts.map((one) => contains(one, text));
  if (isIdPart(text)) matches.push(condition('id', 'beginning', text.toLowerCase()));
  const where = allOf([
    sql<SqlBool>`"accountId" = ${caller.accountId} and "deleted" is null`,
    ...(isAccountWide(caller) ? [] : [inReach(db, caller, reach)]),
    sql<SqlBool>`(${sql.join(matches, sql` or `)})`,
  ]);
  const place = reach ? sql.ref(reach) : none;
  const rows = await readers.read(
    laneOf(caller),
    sql<FoundRow>`select "id", ${name} as "name", ${detail} as "detail", ${place} as "place" from ${sql.table(table)}
      where ${where} order by ${begins} desc, 2, 1 limit ${maxOfKind}`.compile(db),
  );
  return rows
    .filter((row) => access.reaches(caller, caller.accountId, row.place))
    .map(({ place, ...hit }) => ({ type, ...hit, organizationId: type === 'endUser' ? place : null }));
}
