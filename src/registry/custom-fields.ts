/** Custom fields: one shape for devices, end-users, organizations, and device templates themselves. */

import { type Static, type TObject, Type } from 'typebox';
import type { Tx } from '../../db/registry/index.ts';
import { customFieldColumns } from '../../db/registry/records/templates.ts';
import { Nullable, oneOf, type Row } from '../../db/registry/records.ts';
import type { Caller } from '../access.ts';
import { commonShape, listingOf, showCommon, showing, shownProperties } from '../entity/columns.ts';
import { entityRoutes } from '../entity/kind.ts';
import { type ListQuery, listSchema } from '../entity/listing.ts';
import { checkValue, type FieldKind, type FieldType, fieldTypes } from '../entity/values.ts';
import { change, demandReference, insert, recover, stamp, trash, writeAs } from '../entity/verbs.ts';
import { type FailureKind, invalid } from '../errors.ts';
import type { App } from '../http/app.ts';
import { demandWithin, type Limits } from '../limits/table.ts';
import type { RegistryContext } from './context.ts';
import { deviceShape } from './devices/device.ts';
import { endUserShape } from './end-user.ts';
import { organizationShape } from './organizations.ts';
import { deviceTemplateShape } from './templates.ts';

/** Differences between the four kinds: names, and the template that a field belongs to. */
interface CustomFieldKind {
  kind: FieldKind;
  path: string;
  wrapper: string;
  /** The property that names the template; undefined where the set belongs to the account. */
  template: { property: string; table: 'deviceTemplates' | 'endUserTemplates' | 'organizationTemplates' } | undefined;
  /** The entities that have the field: it may not take the name of one of their own properties. */
  entity: TObject;
  /** Names of the create body and of `expand` that an entity does not show. */
  reserved: readonly string[];
}

const kinds: readonly CustomFieldKind[] = [
  {
    kind: 'devices',
    path: '/devices/custom-fields',
    wrapper: 'deviceField',
    template: { property: 'deviceTemplateId', table: 'deviceTemplates' },
    entity: deviceShape,
    reserved: ['account', 'deviceTemplate', 'organization'],
  },
  {
    kind: 'endUsers',
    path: '/end-users/custom-fields',
    wrapper: 'endUserField',
    template: { property: 'endUserTemplateId', table: 'endUserTemplates' },
    entity: endUserShape,
    reserved: ['account', 'endUserTemplate', 'organization', 'createIdmUser', 'idmUserEmail', 'idmUserPassword'],
  },
  {
    kind: 'organizations',
    path: '/organizations/custom-fields',
    wrapper: 'organizationField',
    template: { property: 'organizationTemplateId', table: 'organizationTemplates' },
    entity: organizationShape,
    reserved: ['account', 'parent', 'organizationTemplate', 'endUserTemplateId', 'defaultEndUser'],
  },
  {
    kind: 'deviceTemplates',
    path: '/devices/templates/custom-fields',
    wrapper: 'deviceTemplateField',
    template: undefined,
    entity: deviceTemplateShape,
    reserved: [],
  },
];

const name = Type.String({ minLength: 1, maxLength: 100 });
const fieldType = oneOf(fieldTypes);
const properties = {
  name,
  fieldType,
  description: Type.Optional(Nullable(Type.String({ maxLength: 1000 }))),
  required: Type.Optional(
    Type.Unsafe<boolean | 'true' | 'false'>({
      type: ['boolean', 'string'],
      enum: [true, false, 'true', 'false'],
      description: 'Whether a value is mandatory when an entity is created.',
    }),
  ),
  default: Type.Optional(
    Type.Unsafe<string | number | boolean | null>({
      type: ['string', 'number', 'boolean', 'null'],
      description: 'The value of a new entity when none is given; it must match the type.',
    }),
  ),
};

/**
 * Checks that a template has no more custom fields than the limit; inside the transaction that has added one.
 * @throws PlatformError 400 with 106.
 */
async function demandRoom(tx: Tx, limits: Limits, templateId: string, path: string): Promise<void> {
  const fields = tx.selectFrom('customFields').select((eb) => eb.fn.countAll<number>().as('count'));
  const { count } = await fields
    .where('templateId', '=', templateId)
    .where('deleted', 'is', null)
    .executeTakeFirstOrThrow();
  demandWithin(limits, 'customFields', Number(count), path);
}

export function customFieldRoutes(app: App, ctx: RegistryContext): void {
  for (const kind of kinds) mountCustomFields(app, ctx, kind);
}

const showColumns = showing(customFieldColumns);

function mountCustomFields(app: App, ctx: RegistryContext, kind: CustomFieldKind): void {
  const { clock, access } = ctx;
  const { template } = kind;
  const templateId = template ? { [template.property]: Type.String() } : {};
  const body = Type.Object({ accountId: Type.String(), ...templateId, ...properties });
  const listing = listingOf('customFields', customFieldColumns, { sorts: ['accountId'], within: { kind: kind.kind } });
  const listQuery = listSchema(listing, templateId, template ? { [template.property]: 'templateId' } : {});
  const shape = Type.Object({
    ...commonShape,
    ...templateId,
    ...shownProperties(customFieldColumns),
    fieldType,
  });

  const show = (row: Row<'customFields'>) => ({
    ...showCommon(row),
    ...(template && { [template.property]: row.templateId }),
    ...showColumns(row),
  });

  /** The template that a body or a query names; for device templates themselves the account stands for it. */
  const templateOf = (caller: Caller, given: object) =>
    template ? String((given as Record<string, unknown>)[template.property]) : caller.accountId;

  function checkName(given: string): void {
    if (Object.hasOwn(kind.entity.properties, given) || kind.reserved.includes(given) || given === '__proto__')
      throw invalid('name', 'must not be the name of a built-in property');
  }

  /** The columns that a body sets. @throws PlatformError 400 with 106 naming the property. */
  function readBody(given: Static<typeof body>) {
    checkName(given.name);
    const fallback = given.default ?? null;
    if (fallback !== null) checkValue('default', given.fieldType, fallback);
    return {
      name: given.name,
      fieldType: given.fieldType as FieldType,
      description: given.description,
      required: given.required === undefined ? undefined : given.required === true || given.required === 'true' ? 1 : 0,
      default: given.default === undefined ? undefined : fallback === null ? null : String(fallback),
    };
  }

  async function create(caller: Caller, given: Static<typeof body>) {
    const { description = null, required = 0, default: fallback = null, ...set } = readBody(given);
    const parent = templateOf(caller, given);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      if (template) await demandReference(tx, template.table, caller.accountId, parent, template.property);
      const made = await insert(tx, 'customFields', {
        ...stamp(clock, caller),
        kind: kind.kind,
        templateId: parent,
        ...set,
        description,
        required,
        default: fallback,
      });
      await demandRoom(tx, ctx.config.limits, parent, template?.property ?? 'accountId');
      return made;
    });
    ctx.fields.changed(row.templateId);
    return show(row);
  }

  async function update(caller: Caller, before: Row<'customFields'>, version: number, given: Static<typeof body>) {
    access.demandAccount(caller, given.accountId);
    if (templateOf(caller, given) !== before.templateId)
      throw invalid(template?.property ?? 'accountId', 'must be the template that the field belongs to');
    const changes = readBody(given);
    // Without a new default the stored one must match the type that the field has from now on.
    if (changes.default === undefined && before.default !== null)
      checkValue('default', changes.fieldType, before.default);
    const row = await writeAs(ctx, caller, undefined, (tx) =>
      change(tx, 'customFields', before.id, version, { caller, clock }, changes),
    );
    ctx.fields.changed(row.templateId);
    return show(row);
  }

  async function remove(caller: Caller, { id }: Row<'customFields'>, version: number) {
    const row = await writeAs(ctx, caller, undefined, (tx) => trash(tx, 'customFields', id, version, clock));
    ctx.fields.changed(row.templateId);
    return show(row);
  }

  function narrow(caller: Caller, query: ListQuery) {
    // `required` selects the required ones; false, its default, selects nothing.
    const { required, ...others } = query;
    const sortBy = template && query.sortBy === template.property ? 'templateId' : query.sortBy;
    const wanted = { ...others, ...(sortBy && { sortBy }), ...(required === true && { required }) };
    const within = { ...listing.within, templateId: templateOf(caller, query) };
    return { listing: { ...listing, within }, query: wanted };
  }

  async function recoverOne(caller: Caller, before: Row<'customFields'>, version: number) {
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      if (template) await demandReference(tx, template.table, caller.accountId, before.templateId, template.property);
      const recovered = await recover(tx, 'customFields', before.id, version, { caller, clock });
      await demandRoom(tx, ctx.config.limits, recovered.templateId, template?.property ?? 'accountId');
      return recovered;
    });
    ctx.fields.changed(row.templateId);
    return show(row);
  }

  const parent: readonly FailureKind[] = template ? ['unknownReference'] : [];
  entityRoutes(app, ctx, {
    path: kind.path,
    tag: 'Custom fields',
    entity: 'customField',
    wrapper: kind.wrapper,
    plural: `${kind.wrapper}s`,
    shape,
    listing,
    prepare: () => show,
    create: { body, errors: [...parent, 'notUnique'], run: create },
    update: { body, errors: ['notUnique'], run: update },
    remove: { run: remove },
    list: { query: listQuery, narrow },
    trash: { errors: [...parent, 'notUnique'], recover: recoverOne },
  });
}
