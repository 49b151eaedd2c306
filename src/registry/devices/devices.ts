/** Devices. */

import { type Static, Type } from 'typebox';
import type { Row } from '../../../db/registry/records.js';
import { type Caller, isAccountWide } from '../../access.js';
import type { Context } from '../../context.js';
import { writeAs } from '../../entity/authorized-write.js';
import { parentsOf, readNames } from '../../entity/expand.js';
import { type ListQuery, list, listSchema } from '../../entity/listing.js';
import { entityRoutes, type Wire } from '../../entity/routes.js';
import { showSlices } from '../../entity/row-slices.js';
import { demandLive, demandReference, demandTrashed, findReached, insert, trash } from '../../entity/verbs.js';
import { invalid, PlatformError, unknownReference } from '../../errors.js';
import { askedPlace, demandNew, reserve } from '../../factory/station-limits.js';
import type { App } from '../../http/app.js';
import { accountOf } from '../organizations.js';
import { deviceShape, showDevice, showDeviceTemplate, showOrganization } from '../shapes.js';
import { templateFor } from '../templates.js';
import {
  deviceTrashed,
  newDevice,
  newDeviceShape,
  readSettable,
  recoverDevice,
  stateShape,
  updateDevice,
} from './changes.js';
import { deviceListing } from './listing.js';

const organizationId = Type.Optional(Type.Unsafe<string | null>({ type: ['string', 'null'] }));
const createBody = Type.Object({
  accountId: Type.String(),
  deviceTemplateId: Type.Optional(Type.String()),
  organizationId,
  ...newDeviceShape.properties,
});
const updateBody = Type.Object({ ...stateShape.properties, organizationId });

const expandable = ['account', 'device-template', 'organization'] as const;
const beside = { expand: Type.Optional(Type.String({ description: `Comma-separated: ${expandable.join(', ')}` })) };
const readQuery = Type.Object(beside);

export function deviceRoutes(app: App, ctx: Context): void {
  const { registry, clock, access } = ctx;
  const showOne = (row: Row<'devices'>) => showDevice(ctx, row);

  async function create(caller: Caller, body: Static<typeof createBody> & Record<string, unknown>) {
    access.demand(caller, 'create', 'device');
    access.demandAccount(caller, body.accountId);
    // It says what is wrong with the body before anything that the body names is looked at.
    readSettable(body);
    const { deviceTemplateId, organizationId = null } = askedPlace(caller, body);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const { accountId } = caller;
      const template = await templateFor(tx, 'deviceTemplates', accountId, deviceTemplateId, 'deviceTemplateId');
      if (organizationId !== null)
        await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
      const place = { deviceTemplateId: template.id, organizationId, provisioningState: 'defined' };
      const made = newDevice(ctx, caller, place, body);
      await demandNew(tx, caller, made);
      await reserve(tx, caller, 1, clock);
      return insert(tx, 'devices', made);
    });
    return showOne(row);
  }

  async function read(caller: Caller, id: string, query: Static<typeof readQuery>) {
    access.demand(caller, 'read', 'device');
    const row = demandLive(await findReached(ctx, caller, 'devices', id));
    if (query.expand === undefined) return showOne(row);
    return (await prepare(caller, [row], query))(row);
  }

  async function update(caller: Caller, id: string, version: number, body: Static<typeof updateBody>) {
    access.demand(caller, 'update', 'device');
    const before = demandLive(await findReached(ctx, caller, 'devices', id));
    if (body.organizationId !== undefined && body.organizationId !== before.organizationId && !isAccountWide(caller)) {
      if (body.organizationId === null)
        throw new PlatformError('forbidden', { message: 'Only an admin takes a device out of every organization.' });
      if (!access.reaches(caller, caller.accountId, body.organizationId)) throw unknownReference('organizationId');
    }
    return showOne(await updateDevice(ctx, caller, id, version, body));
  }

  async function remove(caller: Caller, id: string, version: number) {
    access.demand(caller, 'delete', 'device');
    await findReached(ctx, caller, 'devices', id);
    const row = await writeAs(ctx, caller, undefined, (tx) => trash(tx, 'devices', id, version, clock));
    await deviceTrashed(ctx, caller, row);
    return showOne({ ...row, connected: 0 });
  }

  async function page(caller: Caller, query: ListQuery, state: 'live' | 'trash') {
    access.demand(caller, state === 'live' ? 'read' : 'delete', 'device');
    access.demandAccount(caller, query.accountId);
    if (caller.kind === 'station' && typeof query.serialNumber !== 'string')
      throw invalid('serialNumber', 'is required: a station finds its devices by their whole serial number');
    const { rows, meta } = await list(ctx, caller, deviceListing, query, state);
    readExpand(caller, query);
    return { results: rows && showSlices(rows, (current, some) => prepare(current, some, query)), meta };
  }

  function readExpand(caller: Caller, query: Static<typeof readQuery>) {
    const expand = readNames('expand', query.expand, expandable);
    if (expand.size > 0 && caller.kind === 'station')
      throw new PlatformError('forbidden', { message: 'A station sees its devices only.' });
    return expand;
  }

  /** How rows are shown with what the query asks for beside them, which is read for all of them at once. */
  async function prepare(
    caller: Caller,
    rows: Row<'devices'>[],
    query: Static<typeof readQuery>,
  ): Promise<(row: Row<'devices'>) => Wire> {
    const expand = readExpand(caller, query);
    if (expand.size === 0) return showOne;
    const db = registry.query;
    const [organizations, templates, account] = await Promise.all([
      expand.has('organization') ? parentsOf(db, 'organizations', rows, 'organizationId') : undefined,
      expand.has('device-template') ? parentsOf(db, 'deviceTemplates', rows, 'deviceTemplateId') : undefined,
      expand.has('account') ? accountOf(db, caller) : undefined,
    ]);
    return (row: Row<'devices'>) => {
      const organization = organizations?.get(row.organizationId ?? '');
      const template = templates?.get(row.deviceTemplateId);
      return {
        ...showOne(row),
        ...(organizations && { organization: organization ? showOrganization(ctx, organization) : null }),
        ...(template && { deviceTemplate: showDeviceTemplate(ctx, template) }),
        ...(account && { account }),
      };
    };
  }

  async function readTrash(caller: Caller, id: string) {
    access.demand(caller, 'delete', 'device');
    return showOne(demandTrashed(await findReached(ctx, caller, 'devices', id)));
  }

  async function bringBack(caller: Caller, id: string, version: number) {
    access.demand(caller, 'delete', 'device');
    demandTrashed(await findReached(ctx, caller, 'devices', id));
    const row = await writeAs(ctx, caller, undefined, (tx) => recoverDevice(tx, clock, caller, id, { version }));
    access.deviceChanged(id);
    return showOne(row);
  }

  entityRoutes(app, {
    path: '/devices',
    tag: 'Devices',
    entity: 'device',
    wrapper: 'device',
    plural: 'devices',
    shape: deviceShape,
    errors: { create: ['unknownReference', 'notUnique'], update: ['unknownReference'], recover: ['unknownReference'] },
    create: { body: createBody, run: create },
    read: { query: readQuery, run: read },
    update: { body: updateBody, run: update },
    remove,
    revokes: ['update', 'remove'],
    list: {
      query: listSchema(deviceListing, beside),
      run: (caller, query) => page(caller, query as ListQuery, 'live'),
    },
    readTrash,
    listTrash: (caller, query) => page(caller, query, 'trash'),
    recover: bringBack,
  });
}
