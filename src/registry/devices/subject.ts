/** One device as filters see it in memory, for callers of the whole account. */
import type { Registry } from '../../../db/registry/index.ts';
import type { Columns } from '../../../db/registry/records/columns.ts';
import { deviceColumns } from '../../../db/registry/records/devices.ts';
import { organizationColumns } from '../../../db/registry/records/organizations.ts';
import { templateColumns } from '../../../db/registry/records/templates.ts';
import type { Row } from '../../../db/registry/records.ts';
import { instantOf, parseDate } from '../../../db/sqlite/dates.ts';
import { fold } from '../../../db/sqlite/fold.ts';
import type { Fields } from '../../entity/fields.ts';
import { StoredValue } from '../../entity/filters/comparisons.ts';
import type { Subject } from '../../entity/filters/predicate.ts';
import { builtInFields, type Field, type FieldKind } from '../../entity/values.ts';
import { filterable } from '../filters.ts';

export interface SubjectServices {
  registry: Pick<Registry, 'entity' | 'notedOf'>;
  fields: Fields;
}

/** A row that has attributes and fields. */
interface Owner {
  kind: Exclude<FieldKind, 'endUsers'>;
  row: Record<string, unknown>;
  /** Whose custom fields it has. */
  templateId: string;
}

/** The operand that compares custom fields of a type; all others are texts. */
const operandOf: Partial<Record<Field['type'], string>> = {
  boolean: 'flag',
  int: 'number',
  float: 'number',
  datetime: 'date',
  lat: 'degrees',
  long: 'degrees',
};

const byLowerCase = (own: Columns) =>
  new Map(Object.keys(filterable(own)).map((name): [string, string] => [name.toLowerCase(), name]));

/** The columns that filters name, by their names in lower case. */
const columns: Record<Owner['kind'], ReadonlyMap<string, string>> = {
  devices: byLowerCase(deviceColumns),
  deviceTemplates: byLowerCase(templateColumns),
  organizations: byLowerCase(organizationColumns),
};

export class DeviceSubject implements Subject {
  readonly now: number;
  readonly #services: SubjectServices;
  readonly #row: Row<'devices'>;
  readonly #values = new Map<string, readonly StoredValue[]>();
  readonly #read = new Map<Owner, Record<string, unknown>>();
  readonly #owners = new Map<string, Owner | undefined>();
  #noted: Record<string, string | undefined> | undefined;

  constructor(services: SubjectServices, row: Row<'devices'>, now: number) {
    this.#services = services;
    this.#row = row;
    this.now = now;
  }

  valuesOf(name: string): readonly StoredValue[] {
    let values = this.#values.get(name);
    if (!values) {
      values = this.#readValues(name);
      this.#values.set(name, values);
    }
    return values;
  }

  #readValues(name: string): StoredValue[] {
    if (name === 'within') return stored(this.#row.organizationId);
    const dot = name.indexOf('.');
    const owner = dot < 0 ? this.#owner('fields') : this.#owner(name.slice(0, dot));
    if (owner) {
      const own = name.slice(dot + 1);
      const column = name.startsWith('fields.') ? undefined : columns[owner.kind].get(own);
      return column === undefined ? this.#fieldsOf(owner, own, dot < 0) : stored(owner.row[column]);
    }
    return stored(this.#notedOf(name));
  }

  /** The device, or a parent that it has. */
  #owner(prefix: string): Owner | undefined {
    if (!this.#owners.has(prefix)) this.#owners.set(prefix, this.#readOwner(prefix));
    return this.#owners.get(prefix);
  }

  #readOwner(prefix: string): Owner | undefined {
    const { registry } = this.#services;
    const { accountId, deviceTemplateId, organizationId } = this.#row;
    const owner = (kind: Owner['kind'], row: object, templateId: string): Owner => {
      return { kind, row: row as Record<string, unknown>, templateId };
    };
    if (prefix === 'fields') return owner('devices', this.#row, deviceTemplateId);
    if (prefix === 'template') {
      const template = registry.entity('deviceTemplates', deviceTemplateId);
      return template && owner('deviceTemplates', template, accountId);
    }
    if (prefix !== 'organization' || organizationId === null) return undefined;
    const organization = registry.entity('organizations', organizationId);
    return organization && owner('organizations', organization, organization.organizationTemplateId);
  }

  /** Built-in fields have names of their own; custom ones, of which several may have one in some letter case, do not. */
  #fieldsOf(owner: Owner, name: string, isOwnName: boolean): StoredValue[] {
    const builtIn = builtInFields[owner.kind].find((field) => field.name.toLowerCase() === name);
    if (builtIn) return stored(ofType(builtIn.type, this.#json(owner)[builtIn.key]));
    if (isOwnName) return stored(this.#notedOf(name));
    const fields = this.#services.fields.of(owner.kind, owner.templateId);
    return fields
      .filter((field) => field.key !== field.name && fold(field.name) === name)
      .flatMap(({ key, type }) => {
        const value = this.#json(owner)[key];
        const operand = operandOf[type] ?? 'text';
        const isStored = operand === 'flag' ? 'boolean' : operand === 'number' ? 'number' : 'string';
        return typeof value === isStored ? stored(ofType(type, value), operand) : [];
      });
  }

  #json(owner: Owner): Record<string, unknown> {
    let read = this.#read.get(owner);
    if (!read) {
      read = JSON.parse(String(owner.row.fields)) as Record<string, unknown>;
      this.#read.set(owner, read);
    }
    return read;
  }

  #notedOf(name: string): string | undefined {
    this.#noted ??= this.#services.registry.notedOf(this.#row.id);
    return this.#noted[name];
  }
}

/** A value of a field as SQL compares it. */
function ofType(type: Field['type'], value: unknown): unknown {
  if (type === 'datetime') return instantOf(parseDate(value));
  return typeof value === 'boolean' ? Number(value) : value;
}

function stored(value: unknown, type?: string): StoredValue[] {
  return typeof value === 'string' || typeof value === 'number' ? [new StoredValue(value, type)] : [];
}
