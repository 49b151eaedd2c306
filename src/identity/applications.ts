/** Applications: programs that call. The appToken is shown once and stored hashed. */

import { createHash } from 'node:crypto';
import { type Static, Type } from 'typebox';
import type { Db, Tx } from '../../db/registry/index.js';
import { DateText, Id, Nullable, oneOf, type Row } from '../../db/registry/records.js';
import { applicationKinds, type Caller } from '../access.js';
import type { Audit } from '../audit/index.js';
import type { Clock } from '../clock.js';
import type { Context } from '../context.js';
import { commonShape, showCommon } from '../entity/columns.js';
import { entityRoutes } from '../entity/kind.js';
import type { Listing } from '../entity/listing.js';
import { parseDate } from '../entity/values.js';
import { demandReference, find, insert, stamp, trash, writeAs } from '../entity/verbs.js';
import { invalid, PlatformError } from '../errors.js';
import type { App } from '../http/app.js';
import { makeToken } from './secrets/secrets.js';

const lifetime = { minimum: 60, maximum: 30 * 24 * 60 * 60 };
const createBody = Type.Object({
  accountId: Type.String(),
  name: Type.String({ minLength: 1, maxLength: 255 }),
  kind: oneOf(applicationKinds, {
    description:
      'endUserApp creates users, looks them up and resets passwords; backEnd acts as an admin; station makes devices on a factory line.',
  }),
  accessTokenLifetime: Type.Optional(
    Type.Unsafe<number | null>({
      ...lifetime,
      type: ['integer', 'null'],
      description: 'Seconds that its tokens last without a renewal; 1200 when absent.',
    }),
  ),
  revealResetToken: Type.Optional(
    Type.Boolean({ description: 'It mails reset tokens itself: they are in the answer instead of in a mail.' }),
  ),
  deviceTemplateId: Type.Optional(Type.String({ description: 'Of a station: the template of all its devices.' })),
  organizationId: Type.Optional(
    Type.Unsafe<string | null>({
      type: ['string', 'null'],
      description: 'Of a station: where its devices are made; outside of every organization when absent.',
    }),
  ),
  maxDevices: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 10_000_000, description: 'Of a station: how many devices it may make.' }),
  ),
  expiresAt: Type.Optional(Type.String({ description: 'Of a station: until when it works, ISO 8601.' })),
});
type CreateBody = Static<typeof createBody>;

/** Properties that only stations have. */
const ofStations = ['deviceTemplateId', 'organizationId', 'maxDevices', 'expiresAt'] as const;
type StationColumns = Pick<Row<'applications'>, (typeof ofStations)[number]>;
const noStation: StationColumns = { deviceTemplateId: null, organizationId: null, maxDevices: null, expiresAt: null };
const shown = {
  ...commonShape,
  name: Type.String(),
  kind: oneOf(applicationKinds),
  accessTokenLifetime: Nullable(Type.Integer({ description: 'Seconds.' })),
  revealResetToken: Type.Boolean(),
  deviceTemplateId: Type.Optional(Id),
  organizationId: Type.Optional(Nullable(Id)),
  maxDevices: Type.Optional(Type.Integer()),
  madeDevices: Type.Optional(Type.Integer({ description: 'How many a station has made; each counts for good.' })),
  expiresAt: Type.Optional(DateText),
};
const shape = Type.Object(shown, { description: '`id` is the appId.' });
const createdShape = Type.Object({
  ...shown,
  appToken: Type.String({ description: 'For `AccessToken` and login-application; it cannot be read again.' }),
});

const listing: Listing<'applications'> = {
  table: 'applications',
  filters: { name: 'exact', kind: 'exact' },
  sorts: ['created', 'lastModified', 'id', 'name'],
  defaultSort: 'created',
};

export function applicationRoutes(app: App, ctx: Context): void {
  entityRoutes(app, ctx, {
    path: '/applications',
    tag: 'Applications',
    entity: 'application',
    wrapper: 'application',
    plural: 'applications',
    shape,
    listing,
    prepare: () => show,
    create: {
      summary: 'Create an application',
      errors: ['unknownReference'],
      answer: 'The only answer with its appToken.',
      shape: createdShape,
      body: createBody,
      run: (caller, body) => createApplication(ctx, caller, body),
    },
    read: { summary: 'Read an application', answer: 'The application.' },
    list: { summary: 'List applications' },
    remove: {
      summary: 'Delete an application; its appToken and its sessions end',
      answer: 'An application no longer.',
      revokes: true,
      runAnyVersion: (caller, { id }) => deleteApplication(ctx, caller, id),
    },
  });
}

/**
 * Makes an application of the caller's account; its appToken is in the answer and nowhere else.
 * @throws PlatformError 400/106 for a station without its limits, or another with them; 400/102 for what it names.
 */
async function createApplication(ctx: Context, caller: Caller, body: CreateBody) {
  const appToken = makeToken(caller.accountId);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const made = await insertApplication(tx, ctx.clock, caller, body, appToken);
    await ctx.audit.record(tx, {
      event: 'applicationCreated',
      outcome: 'success',
      accountId: made.accountId,
      actor: caller,
      target: { kind: 'application', id: made.id },
      details: { kind: made.kind },
    });
    return made;
  });
  return { ...show(row), appToken };
}

/** Stores a new application whose appToken is known to the caller alone. @throws as createApplication. */
export async function insertApplication(
  tx: Tx,
  clock: Clock,
  by: Pick<Caller, 'id' | 'accountId'>,
  body: Omit<CreateBody, 'accountId'>,
  appToken: string,
): Promise<Row<'applications'>> {
  const station = await readStation(tx, clock, by.accountId, body);
  return insert(tx, 'applications', {
    ...stamp(clock, by),
    name: body.name,
    kind: body.kind,
    tokenHash: hashAppToken(appToken),
    accessTokenLifetime: body.accessTokenLifetime ?? null,
    revealResetToken: body.revealResetToken ? 1 : 0,
    madeDevices: 0,
    ...station,
  });
}

/** The limits of a station, which every station has and nothing else; what they name must be there. */
async function readStation(
  tx: Tx,
  clock: Clock,
  accountId: string,
  body: Omit<CreateBody, 'accountId'>,
): Promise<StationColumns> {
  if (body.kind !== 'station') {
    const given = ofStations.find((name) => (body[name] ?? null) !== null);
    if (given) throw invalid(given, 'is for stations only');
    return noStation;
  }
  const { deviceTemplateId, organizationId = null, maxDevices, expiresAt } = body;
  if (deviceTemplateId === undefined) throw invalid('deviceTemplateId', 'is required for a station');
  if (maxDevices === undefined) throw invalid('maxDevices', 'is required for a station');
  const expires = parseDate(expiresAt);
  if (expires === undefined) throw invalid('expiresAt', 'must be an ISO 8601 date, and is required for a station');
  if (expires <= clock.now()) throw invalid('expiresAt', 'must be in the future');
  await demandReference(tx, 'deviceTemplates', accountId, deviceTemplateId, 'deviceTemplateId');
  if (organizationId !== null) await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
  return { deviceTemplateId, organizationId, maxDevices, expiresAt: new Date(expires).toISOString() };
}

/** @throws PlatformError 410/107 when it has been deleted meanwhile. */
async function deleteApplication(ctx: Context, caller: Caller, id: string) {
  const row = await writeAs(ctx, caller, undefined, (tx) => revokeApplication(tx, ctx, id, caller, {}));
  ctx.revocations.note(caller, await ctx.broker.principalDeleted(row.accountId, id));
  return show(row);
}

/**
 * Ends an application with its sessions; without an actor, on the command line.
 * @throws PlatformError 404/100, 410/107.
 */
export async function revokeApplication(
  tx: Tx,
  { clock, audit }: { clock: Clock; audit: Audit },
  id: string,
  actor: Caller | undefined,
  details: Record<string, string>,
): Promise<Row<'applications'>> {
  const stored = await find(tx, 'applications', id);
  if (!stored) throw new PlatformError('notFound');
  const trashed = await trash(tx, 'applications', id, stored.version, clock);
  await tx.deleteFrom('sessions').where('applicationId', '=', id).execute();
  const target = { kind: 'application', id } as const;
  const { accountId } = stored;
  await audit.record(tx, { event: 'applicationDeleted', outcome: 'success', accountId, actor, target, details });
  return trashed;
}

/** The live application of an appToken. */
export async function findApplication(db: Db, appToken: string): Promise<Row<'applications'> | undefined> {
  return db
    .selectFrom('applications')
    .selectAll()
    .where('tokenHash', '=', hashAppToken(appToken))
    .where('deleted', 'is', null)
    .executeTakeFirst();
}

/** The token has 256 random bits: a plain digest cannot be turned back, and can be looked up. */
function hashAppToken(appToken: string): string {
  return createHash('sha256').update(appToken).digest('base64');
}

function show(row: Row<'applications'>) {
  const { name, accessTokenLifetime, revealResetToken } = row;
  const kind = applicationKinds.find((one) => one === row.kind) ?? 'endUserApp';
  const shown = { ...showCommon(row), name, kind, accessTokenLifetime, revealResetToken: revealResetToken === 1 };
  const { deviceTemplateId, organizationId, maxDevices, madeDevices, expiresAt } = row;
  return kind === 'station'
    ? { ...shown, deviceTemplateId, organizationId, maxDevices, madeDevices, expiresAt }
    : shown;
}
