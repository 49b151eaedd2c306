/** Custom fields: one shape for devices, end-users, organizations, and device templates themselves. */

import { type Static, type TObject, Type } from 'typebox';
import type { Tx } from '../../db/registry/index.ts';
import { customFieldColumns } from '../../db/registry/records/templates.ts';
import { Nullable, oneOf, type Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { type FailureKind, invalid } from '../core/errors.ts';
import { demandWithin, type Limits } from '../core/limits/table.ts';
import { commonShape, listingOf, showCommon, showing, shownProperties } from '../entity/columns.ts';
import { entityRoutes } from '../entity/kind.ts';
import { type Listing, type ListQuery, listSchema } from '../entity/list-query.ts';
import { checkValue, type FieldKind, type FieldType, fieldTypes } from '../entity/values.ts';
import { change, demandReference, insert, inThread, recover, stamp, trash, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
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

/** Of devices, which an account may have a million of. */
const indexing = {
  indexed: Type.Optional(
    Type.Boolean({
      description: 'Whether an index finds devices by it, so that a filter need not read them one by one.',
    }),
  ),
};
const maxIndexed = 20;

const givenShape = Type.Object({ accountId: Type.String(), ...properties, ...indexing });
/** Next to the template, where the kind has one. */
type Given = Static<typeof givenShape>;

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

/** @throws PlatformError 400/106 when a template has more indexed fields than it may have; inside the transaction that has added one. */
async function demandIndexes(tx: Tx, { templateId, indexed }: Row<'customFields'>): Promise<void> {
  if (indexed === 0) return;
  const fields = tx.selectFrom('customFields').select((eb) => eb.fn.countAll<number>().as('count'));
  const { count } = await fields
    .where('templateId', '=', templateId)
    .where('deleted', 'is', null)
    .where('indexed', '=', 1)
    .executeTakeFirstOrThrow();
  if (Number(count) > maxIndexed) throw invalid('indexed', `is for at most ${maxIndexed} custom fields of a template`);
}

export function customFieldRoutes(app: App, ctx: RegistryContext): void {
  for (const kind of kinds) mountCustomFields(app, ctx, kind);
}

const showColumns = showing(customFieldColumns);

/** The custom fields of one kind. */
class CustomFields {
  readonly #ctx: RegistryContext;
  readonly #kind: CustomFieldKind;
  readonly listing: Listing<'customFields'>;

  constructor(ctx: RegistryContext, kind: CustomFieldKind) {
    this.#ctx = ctx;
    this.#kind = kind;
    this.listing = listingOf('customFields', customFieldColumns, { sorts: ['accountId'], within: { kind: kind.kind } });
  }

  show(row: Row<'customFields'>) {
    const { template } = this.#kind;
    return { ...showCommon(row), ...(template && { [template.property]: row.templateId }), ...showColumns(row) };
  }

  /** The template that a body or a query names; for device templates themselves the account stands for it. */
  #templateOf(caller: Caller, given: object): string {
    const { template } = this.#kind;
    return template ? String((given as Record<string, unknown>)[template.property]) : caller.accountId;
  }

  #checkName(given: string): void {
    if (
      Object.hasOwn(this.#kind.entity.properties, given) ||
      this.#kind.reserved.includes(given) ||
      given === '__proto__'
    )
      throw invalid('name', 'must not be the name of a built-in property');
  }

  /** The columns that a body sets. @throws PlatformError 400 with 106 naming the property. */
  #readBody(given: Given) {
    this.#checkName(given.name);
    const fallback = given.default ?? null;
    if (fallback !== null) checkValue('default', given.fieldType, fallback);
    return {
      name: given.name,
      fieldType: given.fieldType as FieldType,
      description: given.description,
      indexed: this.#kind.kind === 'devices' && given.indexed !== undefined ? Number(given.indexed) : undefined,
      required: given.required === undefined ? undefined : given.required === true || given.required === 'true' ? 1 : 0,
      default: given.default === undefined ? undefined : fallback === null ? null : String(fallback),
    };
  }

  async create(caller: Caller, given: Given) {
    const ctx = this.#ctx;
    const { template } = this.#kind;
    const { description = null, required = 0, indexed = 0, default: fallback = null, ...set } = this.#readBody(given);
    const parent = this.#templateOf(caller, given);
    const row = await writeAs(this.#writing({ indexed }), caller, undefined, async (tx) => {
      if (template) await demandReference(tx, template.table, caller.accountId, parent, template.property);
      const made = await insert(tx, 'customFields', {
        ...stamp(ctx.clock, caller),
        kind: this.#kind.kind,
        templateId: parent,
        ...set,
        description,
        required,
        indexed,
        default: fallback,
      });
      await demandIndexes(tx, made);
      await demandRoom(tx, ctx.config.limits, parent, template?.property ?? 'accountId');
      return made;
    });
    ctx.fields.changed(row.templateId);
    return this.show(row);
  }

  async update(caller: Caller, before: Row<'customFields'>, version: number, given: Given) {
    const ctx = this.#ctx;
    ctx.access.demandAccount(caller, given.accountId);
    if (this.#templateOf(caller, given) !== before.templateId)
      throw invalid(this.#kind.template?.property ?? 'accountId', 'must be the template that the field belongs to');
    const changes = this.#readBody(given);
    // Without a new default the stored one must match the type that the field has from now on.
    if (changes.default === undefined && before.default !== null)
      checkValue('default', changes.fieldType, before.default);
    const row = await writeAs(this.#writing(before, changes), caller, undefined, async (tx) => {
      const changed = await change(tx, 'customFields', before.id, version, { caller, clock: ctx.clock }, changes);
      await demandIndexes(tx, changed);
      return changed;
    });
    ctx.fields.changed(row.templateId);
    return this.show(row);
  }

  /** An index is made, or removed, of all devices of the template. */
  #writing(...rows: { indexed?: number | undefined }[]) {
    return rows.some(({ indexed }) => indexed === 1) ? inThread(this.#ctx.registry) : this.#ctx;
  }

  async remove(caller: Caller, before: Row<'customFields'>, version: number) {
    const ctx = this.#ctx;
    const row = await writeAs(this.#writing(before), caller, undefined, (tx) =>
      trash(tx, 'customFields', before.id, version, ctx.clock),
    );
    ctx.fields.changed(row.templateId);
    return this.show(row);
  }

  narrow(caller: Caller, query: ListQuery) {
    const { listing } = this;
    const { template } = this.#kind;
    // `required` selects the required ones; false, its default, selects nothing.
    const { required, ...others } = query;
    const sortBy = template && query.sortBy === template.property ? 'templateId' : query.sortBy;
    const wanted = { ...others, ...(sortBy && { sortBy }), ...(required === true && { required }) };
    const within = { ...listing.within, templateId: this.#templateOf(caller, query) };
    return { listing: { ...listing, within }, query: wanted };
  }

  async recover(caller: Caller, before: Row<'customFields'>, version: number) {
    const ctx = this.#ctx;
    const { template } = this.#kind;
    const row = await writeAs(this.#writing(before), caller, undefined, async (tx) => {
      if (template) await demandReference(tx, template.table, caller.accountId, before.templateId, template.property);
      const recovered = await recover(tx, 'customFields', before.id, version, { caller, clock: ctx.clock });
      await demandIndexes(tx, recovered);
      await demandRoom(tx, ctx.config.limits, recovered.templateId, template?.property ?? 'accountId');
      return recovered;
    });
    ctx.fields.changed(row.templateId);
    return this.show(row);
  }
}

function mountCustomFields(app: App, ctx: RegistryContext, kind: CustomFieldKind): void {
  const { template } = kind;
  const fields = new CustomFields(ctx, kind);
  const { listing } = fields;
  const templateId = template ? { [template.property]: Type.String() } : {};
  const more = (kind.kind === 'devices' ? indexing : {}) as typeof indexing;
  const body = Type.Object({ accountId: Type.String(), ...templateId, ...properties, ...more });
  const listQuery = listSchema(listing, templateId, template ? { [template.property]: 'templateId' } : {});
  const parent: readonly FailureKind[] = template ? ['unknownReference'] : [];
  entityRoutes(app, ctx, {
    path: kind.path,
    tag: 'Custom fields',
    entity: 'customField',
    wrapper: kind.wrapper,
    plural: `${kind.wrapper}s`,
    shape: Type.Object({ ...commonShape, ...templateId, ...shownProperties(customFieldColumns), fieldType }),
    listing,
    prepare: () => (row) => fields.show(row),
    create: { body, errors: [...parent, 'notUnique'], run: (caller, given) => fields.create(caller, given) },
    update: {
      body,
      errors: ['notUnique'],
      run: (caller, before, version, given) => fields.update(caller, before, version, given),
    },
    remove: { run: (caller, row, version) => fields.remove(caller, row, version) },
    list: { query: listQuery, narrow: (caller, query) => fields.narrow(caller, query) },
    trash: {
      errors: [...parent, 'notUnique'],
      recover: (caller, before, version) => fields.recover(caller, before, version),
    },
  });
}
