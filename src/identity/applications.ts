/** Applications: programs that call. The appToken is shown once and stored hashed. */

import { createHash } from 'node:crypto';
import { type Static, Type } from 'typebox';
import { findEntity } from '../../db/registry/entities.ts';
import type { Db, Tx } from '../../db/registry/index.ts';
import { applicationColumns, stationColumns } from '../../db/registry/records/identity.ts';
import type { Row } from '../../db/registry/records.ts';
import { parseDate } from '../../db/sqlite/dates.ts';
import type { Caller } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { fixedRights, largestRights } from '../core/rights.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  readNew,
  showCommon,
  showing,
  shownProperties,
  without,
} from '../entity/columns.ts';
import { demandHas, giveRole, shownRoleId } from '../entity/giving.ts';
import { noteAnswer } from '../entity/kept-answers.ts';
import { entityRoutes } from '../entity/kind.ts';
import { etagOf } from '../entity/routes.ts';
import { change, demandReference, insert, stamp, trash, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import type { Audit } from '../operations/audit/index.ts';
import type { IdentityContext } from './context.ts';
import { makeToken } from './secrets/secrets.ts';
import { demandMaker } from './token-making.ts';

const createBody = Type.Object({ accountId: Type.String(), ...createProperties(applicationColumns) });
const updateBody = Type.Object(changeProperties(applicationColumns));
type UpdateBody = Static<typeof updateBody>;
type CreateBody = Static<typeof createBody>;

/** Properties of a body that only stations have. */
const ofStations = ['deviceTemplateId', 'organizationId', 'maxDevices', 'expiresAt'] as const;
type StationColumns = Pick<Row<'applications'>, (typeof ofStations)[number]>;
const noStation: StationColumns = { deviceTemplateId: null, organizationId: null, maxDevices: null, expiresAt: null };
const shown = { ...commonShape, ...shownProperties(applicationColumns) };
const shape = Type.Object(shown, { description: '`id` is the appId.' });
const createdShape = Type.Object({
  ...shown,
  appToken: Type.String({ description: 'For `AccessToken` and login-application; it cannot be read again.' }),
});

const listing = listingOf('applications', applicationColumns);

export function applicationRoutes(app: App, ctx: IdentityContext): void {
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
      description:
        'The response is the only one with the appToken, which is stored as a hash. A token of /tokens cannot make one.',
      errors: ['unknownReference'],
      answer: 'The only answer with its appToken.',
      shape: createdShape,
      body: createBody,
      run: (caller, body) => createApplication(ctx, caller, body),
    },
    read: { summary: 'Read an application', answer: 'The application.' },
    list: { summary: 'List applications' },
    update: {
      summary: 'Change the name or the role of an application, or the limits of a station',
      description:
        'A role takes effect before the answer, on connections too. The sessions of a station end with its new `expiresAt` at the latest.',
      answer: 'The application, with its new version.',
      errors: ['unknownReference'],
      revokes: true,
      body: updateBody,
      run: (caller, found, version, body) => updateApplication(ctx, caller, found, version, body),
    },
    remove: {
      summary: 'Delete an application; its appToken and its sessions end',
      description: 'Cannot be undone. Other applications are not affected.',
      answer: 'An application no longer.',
      revokes: true,
      runAnyVersion: (caller, { id }) => deleteApplication(ctx, caller, id),
    },
  });
}

/**
 * Makes an application of the caller's account; its appToken is in the answer and nowhere else.
 * @throws PlatformError 400/106 for a station without its limits, or another with them; 400/102 for what it names; as demandMaker.
 */
async function createApplication(ctx: IdentityContext, caller: Caller, body: CreateBody) {
  demandMaker(caller);
  const appToken = makeToken(caller.accountId);
  return writeAs(ctx, caller, undefined, async (tx) => {
    const roleId = await giveRights(tx, caller, body);
    const made = await insertApplication(tx, ctx.clock, caller, { ...body, roleId }, appToken);
    if (roleId !== null) await recordRole(ctx, tx, caller, made);
    await ctx.audit.record(tx, {
      event: 'applicationCreated',
      outcome: 'success',
      accountId: made.accountId,
      actor: caller,
      target: { kind: 'application', id: made.id },
      details: { kind: made.kind },
    });
    const application = { ...show(made), appToken };
    await noteAnswer(tx, { application }, { etag: etagOf(application) });
    return application;
  });
}

/**
 * That its maker has the rights of an application; the role of a back-end, as it is stored.
 * @throws PlatformError 400/106 for a role of another kind; as giveRole.
 */
async function giveRights(
  tx: Tx,
  caller: Caller,
  { kind, roleId, revealResetToken }: Pick<CreateBody, 'kind' | 'roleId' | 'revealResetToken'>,
): Promise<string | null> {
  // It may learn the token with which the password of any end-user is set.
  if (revealResetToken) await demandHas(tx, caller, largestRights.organization);
  if (kind === 'backEnd') return giveRole(tx, caller, 'account', roleId);
  if (roleId !== undefined) throw invalid('roleId', 'is for back-ends only');
  await demandHas(tx, caller, fixedRights[kind]);
  // It makes the secrets of its devices.
  if (kind === 'station') await demandHas(tx, caller, { device: ['publish'] });
  return null;
}

function recordRole(ctx: IdentityContext, tx: Tx, actor: Caller, { id, accountId, roleId }: Row<'applications'>) {
  const target = { kind: 'application', id } as const;
  const details = { roleId: shownRoleId(roleId, 'account') };
  return ctx.audit.record(tx, { event: 'roleAssigned', outcome: 'success', accountId, actor, target, details });
}

async function updateApplication(
  ctx: IdentityContext,
  caller: Caller,
  { id, kind }: Row<'applications'>,
  version: number,
  body: UpdateBody,
) {
  if (body.roleId !== undefined && kind !== 'backEnd') throw invalid('roleId', 'is for back-ends only');
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const { name, roleId } = body;
    const limits = readLimits(ctx.clock, kind, body);
    if (Object.keys(limits).length > 0) await giveRights(tx, caller, { kind: 'station' });
    const changes = {
      ...limits,
      ...(name !== undefined && { name }),
      ...(roleId !== undefined && { roleId: await giveRole(tx, caller, 'account', roleId) }),
    };
    const changed = await change(tx, 'applications', id, version, { caller, clock: ctx.clock }, changes);
    if (roleId !== undefined) await recordRole(ctx, tx, caller, changed);
    const { expiresAt } = limits;
    if (expiresAt) {
      const ofStation = tx.updateTable('sessions').set({ expires: expiresAt }).where('applicationId', '=', id);
      await ofStation.where('expires', '>', expiresAt).execute();
    }
    return changed;
  });
  if (body.roleId !== undefined)
    ctx.revoked.noteRevoked(caller, await ctx.revocations.applicationChanged(row.accountId, id));
  return show(row);
}

/** The limits of a station that a PUT changes. @throws PlatformError 400/106 for those of another application, and for none. */
function readLimits(clock: Clock, kind: string, { maxDevices, expiresAt }: UpdateBody): Partial<StationColumns> {
  const given = Object.entries({ maxDevices, expiresAt }).find(([, value]) => value !== undefined)?.[0];
  if (given !== undefined && kind !== 'station') throw invalid(given, 'is for stations only');
  return {
    ...(maxDevices !== undefined && { maxDevices }),
    ...(expiresAt !== undefined && { expiresAt: readExpiry(clock, expiresAt) }),
  };
}

/** @throws PlatformError 400/106 for what is no date in the future. */
function readExpiry(clock: Clock, text: string | undefined): string {
  const expires = parseDate(text);
  if (expires === undefined) throw invalid('expiresAt', 'must be an ISO 8601 date, and is required for a station');
  if (expires <= clock.now()) throw invalid('expiresAt', 'must be in the future');
  return new Date(expires).toISOString();
}

/** Stores a new application whose appToken is known to the caller alone. @throws as createApplication. */
export async function insertApplication(
  tx: Tx,
  clock: Clock,
  by: Pick<Caller, 'id' | 'accountId'>,
  { roleId, ...body }: Omit<CreateBody, 'accountId' | 'roleId'> & { roleId: string | null },
  appToken: string,
): Promise<Row<'applications'>> {
  const station = await readStation(tx, clock, by.accountId, body);
  return insert(tx, 'applications', {
    ...stamp(clock, by),
    ...readNew(applicationColumns, body),
    roleId,
    tokenHash: hashAppToken(appToken),
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
  const expires = readExpiry(clock, expiresAt);
  await demandReference(tx, 'deviceTemplates', accountId, deviceTemplateId, 'deviceTemplateId');
  if (organizationId !== null) await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
  return { deviceTemplateId, organizationId, maxDevices, expiresAt: expires };
}

/** @throws PlatformError 410/107 when it has been deleted meanwhile. */
async function deleteApplication(ctx: IdentityContext, caller: Caller, id: string) {
  const row = await writeAs(ctx, caller, undefined, (tx) => revokeApplication(tx, ctx, id, caller, {}));
  ctx.revoked.noteRevoked(caller, await ctx.revocations.principalDeleted(row.accountId, id));
  await ctx.registry.query.deleteFrom('accessTokens').where('ownerId', '=', id).execute();
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
  const stored = await findEntity(tx, 'applications', id);
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

const showApplication = showing(
  without(applicationColumns, [
    'deviceTemplateId',
    'organizationId',
    'maxDevices',
    'madeDevices',
    'expiresAt',
    'roleId',
  ]),
);
const showStation = showing(stationColumns);

function show(row: Row<'applications'>) {
  const shown = { ...showCommon(row), ...showApplication(row) };
  if (row.kind === 'backEnd') return { ...shown, roleId: shownRoleId(row.roleId, 'account') };
  return row.kind === 'station' ? { ...shown, ...showStation(row) } : shown;
}
