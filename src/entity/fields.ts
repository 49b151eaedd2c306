/** The fields of an entity: the built-in ones of its kind and those of its template, in memory. */
import type { Registry } from '../../db/registry/index.js';
import type { Limits } from '../limits/table.js';
import { builtInFields, type Field, type FieldKind, type FieldType } from './values.js';

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
}
