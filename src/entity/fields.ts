/** The fields of an entity: the built-in ones of its kind and those of its template, in memory. */
import { type TProperties, Type } from 'typebox';
import type { Db, Registry } from '../../db/registry/index.ts';
import { OptionalText } from '../../db/registry/records/columns.ts';
import type { Limits } from '../core/limits/table.ts';
import { builtInFields, type Field, type FieldKind, type FieldType, readNewFields } from './values.ts';

export class Fields {
  readonly limits: Limits;
  readonly #registry: Pick<Registry, 'customFieldsOf'>;
  readonly #byTemplate = new Map<string, readonly Field[]>();

  constructor(registry: Pick<Registry, 'customFieldsOf'>, limits: Limits) {
    this.#registry = registry;
    this.limits = limits;
  }

  /** The fields of an entity of `templateId`; for a device template itself, of its account. */
  of(kind: FieldKind, templateId: string): readonly Field[] {
    let fields = this.#byTemplate.get(templateId);
    if (!fields) {
      const custom = this.#registry.customFieldsOf(templateId).map((row) => ({
        key: row.id,
        name: row.name,
        type: row.fieldType as FieldType,
        required: row.required === 1,
        default: row.default,
      }));
      fields = [...builtInFields[kind], ...custom];
      this.#byTemplate.set(templateId, fields);
    }
    return fields;
  }

  /** Told after a commit that has changed the fields of a template. */
  changed(templateId: string): void {
    this.#byTemplate.delete(templateId);
  }

  /** Accounts have come or gone as a whole. */
  accountsChanged(): void {
    this.#byTemplate.clear();
  }
}

/** What custom fields have at first where nobody asks for them: those that are required are filled in later. */
export function defaultsOf(fields: Fields, kind: FieldKind, templateId: string): string {
  const optional = fields.of(kind, templateId).map((field) => ({ ...field, required: false }));
  return readNewFields(optional, {}, fields.limits);
}

/** The names of the live custom fields of a kind, of any template of an account. */
export async function customNames(db: Db, accountId: string, kind: FieldKind): Promise<Set<string>> {
  const fields = db.selectFrom('customFields').select('name').distinct().where('accountId', '=', accountId);
  const found = await fields.where('kind', '=', kind).where('deleted', 'is', null).execute();
  return new Set(found.map(({ name }) => name));
}

/** Built-in custom fields as properties of a response: null by default. Those of the template are next to them. */
export function fieldShapes(kind: FieldKind): TProperties {
  return Object.fromEntries(builtInFields[kind].map(({ name }) => [name, OptionalText]));
}

/** The types of built-in custom fields as schemas; all of them are text. `checkValue` decides. */
const fieldSchemas: Partial<Record<Field['type'], object>> = {
  countryCode: { maxLength: 2 },
  datetime: { maxLength: 40, description: 'An ISO 8601 date.' },
  isoCountry: { maxLength: 6, description: 'An ISO 3166 code, such as US or US-MA.' },
  name: { minLength: 5, maxLength: 100 },
  personName: { minLength: 1, maxLength: 100 },
  postalCode: { maxLength: 10 },
  string: { maxLength: 255 },
  territory: { maxLength: 2 },
  text: { maxLength: 1000 },
};

/** Built-in custom fields as properties of a body. */
export function fieldBody(kind: FieldKind): TProperties {
  return Object.fromEntries(
    builtInFields[kind].map(({ name, type }) => {
      const schema = { ...fieldSchemas[type], type: ['string', 'null'] };
      return [name, Type.Optional(Type.Unsafe<string | null>(schema))];
    }),
  );
}
