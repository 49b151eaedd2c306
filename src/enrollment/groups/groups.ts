/** Enrollment groups: what devices have to prove so that they get an identity, and which one they get. */
import { Type } from 'typebox';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Tx } from '../../../db/registry/index.ts';
import { enrollmentGroupColumns } from '../../../db/registry/records/enrollment.ts';
import { findIssuer } from '../../certificates/issuing.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { readChanges, readNew } from '../../entity/columns.ts';
import { demandHas } from '../../entity/giving.ts';
import { noteAnswer } from '../../entity/kept-answers.ts';
import { entityRoutes } from '../../entity/kind.ts';
import { etagHeaders, etagOf, idParams, readDate, readEtag, sendEntity } from '../../entity/routes.ts';
import {
  change,
  demandLive,
  demandReference,
  findReached,
  insert,
  recover,
  stamp,
  trash,
  writeAs,
} from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import type { EnrollmentContext } from '../context.ts';
import {
  type CreateBody,
  createBody,
  type GroupRow,
  groupListing,
  groupShape,
  showGroup,
  type UpdateBody,
  updateBody,
  withSecrets,
} from './group.ts';
import { type GroupSecrets, hookColumns, madeHookSecret, makeProof } from './group-secrets.ts';

const maxPerAccount = 100;
const tag = 'Enrollment';

export function enrollmentGroupRoutes(app: App, ctx: EnrollmentContext): void {
  entityRoutes(app, ctx, {
    path: '/enrollment-groups',
    tag,
    entity: 'enrollmentGroup',
    wrapper: 'enrollmentGroup',
    plural: 'enrollmentGroups',
    shape: groupShape,
    listing: groupListing,
    prepare: () => (row) => showGroup(ctx, row),
    create: {
      description: `Devices get their own credential with \`POST /enroll\`. An account has ${maxPerAccount} groups at most.`,
      answer: 'The new group, and the only answer with its secrets.',
      shape: withSecrets,
      errors: ['unknownReference', 'notUnique'],
      body: createBody,
      run: (caller, body) => createGroup(ctx, caller, body),
    },
    update: {
      answer: 'With its new version, and its new hook secret when one was made.',
      shape: withSecrets,
      errors: ['unknownReference', 'notUnique'],
      body: updateBody,
      run: (caller, before, version, body) => updateGroup(ctx, caller, demandLive(before), version, body),
    },
    remove: { run: (caller, before, version) => deleteGroup(ctx, caller, before, version) },
    trash: {
      errors: ['unknownReference', 'notUnique'],
      recover: (caller, before, version) => recoverGroup(ctx, caller, before, version),
    },
  });
  regenerateRoute(app, ctx);
}

function regenerateRoute(app: App, ctx: EnrollmentContext): void {
  app.post(
    '/enrollment-groups/:id/regenerate',
    {
      config: {
        creates: true,
        whenFull: true,
        right: ['update', 'enrollmentGroup'],
        errors: ['notFound', 'etagMissing', 'etagInvalid', 'deleted', 'staleVersion', 'forbidden'],
        sends: ['etag'],
      },
      schema: {
        tags: [tag],
        operationId: 'regenerateEnrollmentGroup',
        summary: 'Make the secrets of a group anew; the former ones end',
        description:
          'A new claim secret or group key, and a new hook secret if the service made the former one. Devices that have enrolled keep their credentials.',
        params: idParams,
        headers: etagHeaders,
        response: { 200: Type.Object({ enrollmentGroup: withSecrets }, { description: 'The only answer with them.' }) },
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const before = demandLive(findReached(ctx, caller, 'enrollmentGroups', params.id));
      return sendEntity(reply, 'enrollmentGroup', await regenerate(ctx, caller, before, readEtag(request)));
    },
  );
}

/** A person who knows the secret of a group makes devices that publish. */
const making = { device: ['create', 'publish'] } as const;

/** @throws PlatformError 400/102, 400/106 for what does not fit together, and for one group too many. */
async function createGroup(ctx: EnrollmentContext, caller: Caller, body: CreateBody) {
  const stamped = stamp(ctx.clock, caller);
  const made = await makeProof(ctx, laneOf(caller), { id: stamped.id, proof: body.proof });
  const hook = hookColumns(ctx, stamped.id, body);
  const columns = { ...readNew(enrollmentGroupColumns, body), ...datesOf(body) };
  demandFitting(columns);
  return writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, making);
    await demandReferences(ctx, tx, caller.accountId, columns);
    const row = await insert(tx, 'enrollmentGroups', {
      ...{ ...stamped, ...columns, enrolledCount: 0, claimHash: null, sealedGroupKey: null },
      ...{ sealedHookUrl: null, sealedHookSecret: null, isHookSecretMade: 0, ...made.columns, ...hook.columns },
    });
    await demandRoom(tx, caller.accountId);
    await recordChange(ctx, tx, caller, row, 'created');
    return shownWith(ctx, tx, row, { ...made.shown, ...hook.shown });
  });
}

/** @throws PlatformError as change, and 400/102, 400/106 as createGroup. */
async function updateGroup(ctx: EnrollmentContext, caller: Caller, found: GroupRow, version: number, body: UpdateBody) {
  const hook = hookColumns(ctx, found.id, body, found);
  const changes = { ...readChanges(enrollmentGroupColumns, body), ...datesOf(body), ...hook.columns };
  return writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, making);
    const before = await findEntity(tx, 'enrollmentGroups', found.id);
    if (!before) throw new PlatformError('notFound');
    demandFitting({ ...before, ...changes });
    await demandReferences(ctx, tx, caller.accountId, changes);
    const row = await change(tx, 'enrollmentGroups', found.id, version, { caller, clock: ctx.clock }, changes);
    await recordChange(ctx, tx, caller, row, 'updated');
    return { ...showGroup(ctx, row), ...hook.shown };
  });
}

/** @throws PlatformError as change, and 400/106 where the service has made no secret. */
async function regenerate(ctx: EnrollmentContext, caller: Caller, before: GroupRow, version: number) {
  const made = await makeProof(ctx, laneOf(caller), before);
  const hook = before.isHookSecretMade === 1 ? madeHookSecret(ctx, before.id) : undefined;
  if (before.proof === 'certificate' && !hook) throw invalid('id', 'the group has no secret of the service');
  return writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, making);
    const changes = { ...made.columns, ...hook?.columns };
    const row = await change(tx, 'enrollmentGroups', before.id, version, { caller, clock: ctx.clock }, changes);
    await recordChange(ctx, tx, caller, row, 'secretsRegenerated');
    return shownWith(ctx, tx, row, { ...made.shown, ...hook?.shown });
  });
}

/** @throws PlatformError as trash. */
async function deleteGroup(ctx: EnrollmentContext, caller: Caller, { id }: GroupRow, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'enrollmentGroups', id, version, ctx.clock);
    await recordChange(ctx, tx, caller, trashed, 'deleted');
    return trashed;
  });
  return showGroup(ctx, row);
}

/** @throws PlatformError as recover, 400/102 for a template or organization that is gone, 400/106 for one group too many. */
async function recoverGroup(ctx: EnrollmentContext, caller: Caller, before: GroupRow, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, making);
    await demandReferences(ctx, tx, caller.accountId, before);
    const recovered = await recover(tx, 'enrollmentGroups', before.id, version, { caller, clock: ctx.clock });
    await demandRoom(tx, caller.accountId);
    await recordChange(ctx, tx, caller, recovered, 'recovered');
    return recovered;
  });
  return showGroup(ctx, row);
}

async function shownWith(ctx: EnrollmentContext, tx: Tx, row: GroupRow, secrets: GroupSecrets['shown']) {
  const shown = { ...showGroup(ctx, row), ...secrets };
  await noteAnswer(tx, { enrollmentGroup: shown }, { etag: etagOf(shown) });
  return shown;
}

/** Inside the transaction that has added one. @throws PlatformError 400/106. */
async function demandRoom(tx: Tx, accountId: string): Promise<void> {
  const groups = tx.selectFrom('enrollmentGroups').select('id').where('accountId', '=', accountId);
  const live = await groups.where('deleted', 'is', null).execute();
  if (live.length > maxPerAccount)
    throw invalid('accountId', `has ${maxPerAccount} enrollment groups, which is the maximum`);
}

/** The dates of a body as they are stored, all in one form. @throws PlatformError 400/106. */
function datesOf(body: Pick<UpdateBody, 'validFrom' | 'validUntil'>): Partial<GroupRow> {
  const dates: Partial<GroupRow> = {};
  for (const name of ['validFrom', 'validUntil'] as const) {
    const time = readDate(name, body[name] ?? undefined);
    if (time !== undefined) dates[name] = new Date(time).toISOString();
  }
  return dates;
}

type Fitting = Pick<
  GroupRow,
  'proof' | 'proofAuthorityId' | 'issues' | 'certificateAuthorityId' | 'validFrom' | 'validUntil'
>;

/** @throws PlatformError 400/106 for properties that do not go together. */
function demandFitting(group: Fitting): void {
  const isByCertificate = group.proof === 'certificate';
  if (isByCertificate && group.proofAuthorityId === null)
    throw invalid('proofAuthorityId', 'is required for the proof certificate');
  if (!isByCertificate && group.proofAuthorityId !== null)
    throw invalid('proofAuthorityId', 'is for the proof certificate only');
  if (group.issues !== 'secret' && group.certificateAuthorityId === null)
    throw invalid('certificateAuthorityId', 'is required where the group issues certificates');
  if (group.validFrom !== null && group.validUntil !== null && group.validFrom >= group.validUntil)
    throw invalid('validUntil', 'must be later than validFrom');
}

type References = Partial<
  Pick<GroupRow, 'deviceTemplateId' | 'organizationId' | 'proofAuthorityId' | 'certificateAuthorityId'>
>;

/** @throws PlatformError 400/102 for what is not there, 400/106 for a CA that cannot issue certificates. */
async function demandReferences(ctx: EnrollmentContext, tx: Tx, accountId: string, group: References): Promise<void> {
  const tables = {
    deviceTemplateId: 'deviceTemplates',
    organizationId: 'organizations',
    proofAuthorityId: 'certificateAuthorities',
  } as const;
  for (const [name, table] of Object.entries(tables) as Array<
    [keyof typeof tables, (typeof tables)[keyof typeof tables]]
  >) {
    const id = group[name];
    if (id !== undefined && id !== null) await demandReference(tx, table, accountId, id, name);
  }
  const { certificateAuthorityId } = group;
  if (certificateAuthorityId) await findIssuer(tx, ctx.clock, accountId, certificateAuthorityId);
}

function recordChange(
  { audit }: EnrollmentContext,
  tx: Tx,
  actor: Caller,
  { id, accountId }: GroupRow,
  what: string,
): Promise<void> {
  const target = { kind: 'enrollmentGroup', id } as const;
  const details = { change: what };
  return audit.record(tx, { event: 'enrollmentGroupChanged', outcome: 'success', accountId, actor, target, details });
}
