/** Firmware packages: made as a draft, filled with files, published, and frozen from then on. */

import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Db, Tx } from '../../../db/registry/index.ts';
import { firmwarePackageColumns } from '../../../db/registry/records/downlink.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  readChanges,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../../entity/columns.ts';
import { readNames } from '../../entity/expand.ts';
import { entityRoutes } from '../../entity/kind.ts';
import { entityResponse, etagHeaders, idParams, readEtag, sendEntity } from '../../entity/routes.ts';
import {
  change,
  demandReference,
  findLive,
  findReached,
  insert,
  recover,
  stamp,
  trash,
  writeAs,
} from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import type { Audit } from '../../operations/audit/index.ts';
import { packageDeviceCounts } from '../../registry/devices/counts.ts';
import type { DownlinkContext } from '../context.ts';
import { type FirmwareFile, type FirmwarePackage, fileShape, filesOf } from './files.ts';

/** Files of one package. */
export const maxFiles = 16;

const createBody = Type.Object({ accountId: Type.String(), ...createProperties(firmwarePackageColumns) });
const updateBody = Type.Object(changeProperties(firmwarePackageColumns));
export const packageShape = Type.Object({
  ...commonShape,
  ...shownProperties(firmwarePackageColumns),
  files: Type.Array(fileShape, { maxItems: maxFiles }),
  deviceCount: Type.Optional(Type.Integer({ description: 'Devices of its template that have its firmwareVersion.' })),
});

const countable = ['devices'] as const;
const counted = {
  count: Type.Optional(Type.String({ description: `Comma-separated: ${countable.join(', ')}` })),
};
const readCounts = (query: { count?: string }) => readNames('count', query.count, countable);

const listing = listingOf('firmwarePackages', firmwarePackageColumns);

export function firmwarePackageRoutes(app: App, ctx: DownlinkContext): void {
  entityRoutes(app, ctx, {
    path: '/firmware/packages',
    tag: 'Firmware',
    entity: 'firmwarePackage',
    wrapper: 'firmwarePackage',
    plural: 'firmwarePackages',
    shape: packageShape,
    listing,
    expand: { query: counted, check: (_, query) => readCounts(query) },
    prepare: (caller, rows, query) => prepare(ctx, caller, rows, query),
    create: { body: createBody, errors: ['unknownReference'], run: (caller, body) => create(ctx, caller, body) },
    update: { body: updateBody, run: (caller, found, version, body) => update(ctx, caller, found, version, body) },
    remove: { errors: ['constraint'], run: (caller, found, version) => remove(ctx, caller, found, version) },
    trash: {
      errors: ['unknownReference'],
      recover: (caller, before, version) => recoverOne(ctx, caller, before, version),
    },
  });

  for (const [verb, state, summary, description, answer] of [
    [
      'publish',
      'published',
      'Publish a package: from now on its files never change',
      'The etag header must be its version. A draft needs at least one complete file.',
      'It can be rolled out.',
    ],
    [
      'retire',
      'retired',
      'Retire a package: no new rollout takes it',
      'The etag header must be its version.',
      'Rollouts that have begun go on.',
    ],
  ] as const)
    app.post(
      `/firmware/packages/:id/${verb}`,
      {
        config: {
          right: ['update', 'firmwarePackage'],
          errors: ['notFound', 'etagMissing', 'etagInvalid', 'deleted', 'staleVersion', 'forbidden'],
          sends: ['etag'],
        },
        schema: {
          tags: ['Firmware'],
          operationId: `${verb}FirmwarePackage`,
          summary,
          description,
          params: idParams,
          headers: etagHeaders,
          response: entityResponse('firmwarePackage', packageShape, answer),
        },
      },
      async (request, reply) => {
        const { caller, params } = request;
        findReached(ctx, caller, 'firmwarePackages', params.id);
        const wire = await moveTo(ctx, caller, params.id, readEtag(request), state);
        return sendEntity(reply, 'firmwarePackage', wire);
      },
    );
}

async function create(ctx: DownlinkContext, caller: Caller, body: Static<typeof createBody>) {
  const { clock } = ctx;
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandReference(tx, 'deviceTemplates', caller.accountId, body.deviceTemplateId, 'deviceTemplateId');
    const made = await insert(tx, 'firmwarePackages', {
      ...stamp(clock, caller),
      ...readNew(firmwarePackageColumns, body),
      state: 'draft',
    });
    await recordPackage(ctx, tx, caller, made, 'created');
    return made;
  });
  return showPackage(row, []);
}

async function update(
  ctx: DownlinkContext,
  caller: Caller,
  before: FirmwarePackage,
  version: number,
  body: Static<typeof updateBody>,
) {
  const { registry, clock } = ctx;
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const changes = readChanges(firmwarePackageColumns, body);
    const changed = await change(tx, 'firmwarePackages', before.id, version, { caller, clock }, changes);
    const isRenumbered = changed.firmwareVersion !== before.firmwareVersion;
    if (isRenumbered && changed.state !== 'draft') throw frozen('firmwareVersion');
    await recordPackage(ctx, tx, caller, changed, 'updated');
    return changed;
  });
  return withFiles(registry.query, row);
}

async function remove(ctx: DownlinkContext, caller: Caller, { id }: FirmwarePackage, version: number) {
  const { registry, clock } = ctx;
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'firmwarePackages', id, version, clock);
    const open = tx.selectFrom('firmwareRollouts').select('id').where('accountId', '=', trashed.accountId);
    // One that goes back may come to any package of the template.
    const needsIt = sql<boolean>`("firmwarePackageId" = ${id} or "target" ->> 'revertOf' is not null and "firmwarePackageId" in
      (select "id" from "firmwarePackages" where "deviceTemplateId" = ${trashed.deviceTemplateId}))`;
    if (await open.where('finished', 'is', null).where(needsIt).limit(1).executeTakeFirst())
      throw new PlatformError('constraint', { message: 'The package has a rollout that has not ended.' });
    await recordPackage(ctx, tx, caller, trashed, 'deleted');
    return trashed;
  });
  return withFiles(registry.query, row);
}

async function prepare(
  { registry }: DownlinkContext,
  { accountId }: Caller,
  rows: FirmwarePackage[],
  query: { count?: string },
) {
  const ids = rows.map(({ id }) => id);
  const files = await filesOf(registry.query, ids);
  const devices = readCounts(query).has('devices') && (await packageDeviceCounts(registry.query, accountId, ids));
  return (row: FirmwarePackage) => ({
    ...showPackage(row, files.get(row.id) ?? []),
    ...(devices && { deviceCount: devices.get(row.id) ?? 0 }),
  });
}

async function recoverOne(
  ctx: DownlinkContext,
  caller: Caller,
  { id, deviceTemplateId, accountId }: FirmwarePackage,
  version: number,
) {
  const { registry, clock } = ctx;
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandReference(tx, 'deviceTemplates', accountId, deviceTemplateId, 'deviceTemplateId');
    const recovered = await recover(tx, 'firmwarePackages', id, version, { caller, clock });
    await recordPackage(ctx, tx, caller, recovered, 'recovered');
    return recovered;
  });
  return withFiles(registry.query, row);
}

/** @throws PlatformError 400/106 for a step that the state does not allow, or a draft without a whole file. */
async function moveTo(
  ctx: DownlinkContext,
  caller: Caller,
  id: string,
  version: number,
  state: 'published' | 'retired',
) {
  const { registry, clock } = ctx;
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const before = await findLive(tx, 'firmwarePackages', caller.accountId, id);
    const changed = await change(tx, 'firmwarePackages', id, version, { caller, clock }, { state });
    const from = state === 'published' ? 'draft' : 'published';
    if (before?.state !== from) throw invalid('state', `is ${before?.state}: only a ${from} package can be ${state}`);
    const files = await filesOf(tx, [id]);
    if (!files.get(id)?.length) throw invalid('files', 'are missing: upload one file at least');
    const uploads = tx.selectFrom('firmwareUploads').select('name').where('packageId', '=', id);
    const unfinished = await uploads.executeTakeFirst();
    if (state === 'published' && unfinished)
      throw invalid('files', `${unfinished.name} is not whole: end its upload, or delete it`);
    await recordPackage(ctx, tx, caller, changed, state);
    return changed;
  });
  return withFiles(registry.query, row);
}

/** Refuses changes of a package that is in use. */
export function frozen(path: string): PlatformError {
  return invalid(path, 'cannot be changed: the package is published, make another one');
}

export async function withFiles(db: Db, row: FirmwarePackage) {
  return showPackage(row, (await filesOf(db, [row.id])).get(row.id) ?? []);
}

export function showFile({ name, revision, size, sha256, signature }: FirmwareFile) {
  return { name, revision, size, sha256, signature };
}

const showColumns = showing(firmwarePackageColumns);

export function showPackage(row: FirmwarePackage, files: readonly FirmwareFile[]) {
  return { ...showCommon(row), ...showColumns(row), files: files.map(showFile) };
}

export function recordPackage(
  { audit }: { audit: Audit },
  tx: Tx,
  actor: Caller,
  { id, accountId, firmwareVersion }: FirmwarePackage,
  what: string,
  more: Record<string, string | number> = {},
): Promise<void> {
  const target = { kind: 'firmwarePackage', id } as const;
  const details = { change: what, firmwareVersion, ...more };
  return audit.record(tx, { event: 'firmwarePackageChanged', outcome: 'success', accountId, actor, target, details });
}
