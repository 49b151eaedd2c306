/** Devices. */

import { type Static, Type } from 'typebox';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError, unknownReference } from '../../core/errors.ts';
import { normalizeSerialNumber } from '../../core/formats/serial-numbers.ts';
import { readNew } from '../../entity/columns.ts';
import { parentsOf, readNames } from '../../entity/expand.ts';
import { entityRoutes } from '../../entity/kind.ts';
import type { ListQuery } from '../../entity/list-query.ts';
import type { ShownEntity } from '../../entity/routes.ts';
import { demandLive, demandReference, insert, trash, writeAs } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import { accountOf, expandedAccount } from '../accounts.ts';
import type { RegistryContext } from '../context.ts';
import { organizationShape, readableOrganizations, showOrganization } from '../organizations.ts';
import { customFieldsFor, deviceTemplateShape, showDeviceTemplate, templateFor } from '../templates.ts';
import { deviceTrashed, newDevice, recoverDevice, updateDevice } from './changes.ts';
import { createBody, deviceListing, deviceShape, settable, showDevice, updateBody } from './device.ts';
import { compileSelection, selectionParameters } from './selection.ts';
import { askedPlace, demandNew, reserve } from './station-limits.ts';
import { readValueNames, valuesOf, valuesQuery } from './values.ts';

const expandable = ['account', 'device-template', 'organization'] as const;
const expandQuery = {
  expand: Type.Optional(Type.String({ description: `Comma-separated: ${expandable.join(', ')}` })),
  ...valuesQuery,
};
type Expand = { expand?: string; values?: string };

export function deviceRoutes(app: App, ctx: RegistryContext): void {
  entityRoutes(app, ctx, {
    path: '/devices',
    tag: 'Devices',
    entity: 'device',
    wrapper: 'device',
    plural: 'devices',
    shape: deviceShape,
    listing: deviceListing,
    fieldKind: 'devices',
    expand: {
      query: expandQuery,
      check: readExpand,
      adds: {
        account: { shape: expandedAccount },
        deviceTemplate: { shape: deviceTemplateShape, fieldKind: 'deviceTemplates' },
        organization: { shape: organizationShape, fieldKind: 'organizations' },
      },
    },
    customFields: (caller, body, before) =>
      customFieldsFor(
        ctx,
        'devices',
        ['deviceTemplates', 'deviceTemplateId'],
        caller,
        before ?? askedPlace(caller, body),
      ),
    prepare: (caller, rows, query) => prepare(ctx, caller, rows, query),
    create: {
      body: createBody,
      errors: ['unknownReference', 'notUnique'],
      run: (caller, body) => create(ctx, caller, body),
    },
    update: {
      body: updateBody,
      errors: ['unknownReference'],
      revokes: true,
      run: (caller, found, version, body) => update(ctx, caller, found, version, body),
    },
    remove: { revokes: true, run: (caller, found, version) => remove(ctx, caller, found, version) },
    list: {
      errors: ['unknownReference'],
      narrow,
      compile: {
        query: selectionParameters,
        run: (caller, { fleetId }, filter) => compileSelection(ctx, caller, { filter, fleetId }),
      },
    },
    trash: {
      errors: ['unknownReference'],
      recover: (caller, before, version) => recoverOne(ctx, caller, before, version),
    },
  });
}

async function create(ctx: RegistryContext, caller: Caller, body: Static<typeof createBody> & Record<string, unknown>) {
  const { clock } = ctx;
  // It says what is wrong with the body before anything that the body names is looked at.
  readNew(settable, body);
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
  return showDevice(ctx, caller, row);
}

async function update(
  ctx: RegistryContext,
  caller: Caller,
  found: Row<'devices'>,
  version: number,
  body: Static<typeof updateBody>,
) {
  const { access } = ctx;
  const before = demandLive(found);
  const { organizationId: to = null } = body;
  // To take it out of all organizations is another question: demandRemoving.
  if (to !== null && to !== before.organizationId && !access.reaches(caller, caller.accountId, to))
    throw unknownReference('organizationId');
  return showDevice(ctx, caller, await updateDevice(ctx, caller, before.id, version, body));
}

async function remove(ctx: RegistryContext, caller: Caller, { id }: Row<'devices'>, version: number) {
  const { clock } = ctx;
  const row = await writeAs(ctx, caller, undefined, (tx) => trash(tx, 'devices', id, version, clock));
  await deviceTrashed(ctx, caller, row);
  return showDevice(ctx, caller, { ...row, connected: 0 });
}

function narrow(caller: Caller, query: ListQuery) {
  if (caller.kind === 'station' && query.filter) throw invalid('filter', 'is not for stations');
  if (caller.kind === 'station' && typeof query.serialNumber !== 'string')
    throw invalid('serialNumber', 'is required: a station finds its devices by their whole serial number');
  const { serialNumber } = query;
  // A filter of blanks stays: without it the list would be that of all devices.
  const normal = typeof serialNumber === 'string' ? normalizeSerialNumber(serialNumber) : '';
  return { listing: deviceListing, query: normal === '' ? query : { ...query, serialNumber: normal } };
}

function readExpand(caller: Caller, query: Expand) {
  const expand = readNames('expand', query.expand, expandable);
  if (expand.size > 0 && caller.kind === 'station')
    throw new PlatformError('forbidden', { message: 'A station can only see the devices that it created.' });
  return { expand, values: readValueNames(query.values) };
}

/** How rows are shown with what the query asks for next to them, which is read for all of them at once. */
async function prepare(
  ctx: RegistryContext,
  caller: Caller,
  rows: Row<'devices'>[],
  query: Expand,
): Promise<(row: Row<'devices'>) => ShownEntity> {
  const { registry } = ctx;
  const { expand, values: names } = readExpand(caller, query);
  if (expand.size === 0 && names.length === 0) return (row) => showDevice(ctx, caller, row);
  const db = registry.query;
  const [found, templates, account, values] = await Promise.all([
    expand.has('organization') ? parentsOf(db, 'organizations', rows, 'organizationId') : undefined,
    expand.has('device-template') ? parentsOf(db, 'deviceTemplates', rows, 'deviceTemplateId') : undefined,
    expand.has('account') ? accountOf(db, caller) : undefined,
    names.length > 0 ? valuesOf(ctx, caller, rows, names) : undefined,
  ]);
  const organizations = readableOrganizations(ctx, caller, found);
  // Many devices have the same parents, each of which is shown once.
  const shownOrganizations = organizations && shownById(organizations, (one) => showOrganization(ctx, one));
  const shownTemplates = templates && shownById(templates, (one) => showDeviceTemplate(ctx, one));
  return (row: Row<'devices'>) => {
    const organization = shownOrganizations?.get(row.organizationId ?? '');
    const template = shownTemplates?.get(row.deviceTemplateId);
    return {
      ...showDevice(ctx, caller, row),
      ...(shownOrganizations && { organization: organization ?? null }),
      ...(template && { deviceTemplate: template }),
      ...(account && { account }),
      ...(values && { values: values.get(row.id) }),
    };
  };
}

async function recoverOne(ctx: RegistryContext, caller: Caller, { id }: Row<'devices'>, version: number) {
  const { clock, access } = ctx;
  const row = await writeAs(ctx, caller, undefined, (tx) => recoverDevice(tx, clock, caller, id, { version }));
  access.deviceChanged(id);
  return showDevice(ctx, caller, row);
}

function shownById<R, W>(rows: ReadonlyMap<string, R>, show: (row: R) => W): Map<string, W> {
  return new Map([...rows].map(([id, row]) => [id, show(row)]));
}
