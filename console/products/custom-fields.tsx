/** The custom fields that devices of a product have. */
import { type Body, type Entity, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { deletion } from '../parts/lists/deletions.ts';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { creating } from '../parts/lists/verbs.tsx';
import { texts } from '../texts.ts';

const words = texts.products;
type FieldType = Body<'customField'>['fieldType'];
const types = 'string text int float boolean datetime email url name lat long'.split(' ');

export const customFieldsOf = (product: string): EntityList<Entity<'customField'>> => ({
  label: words.fields,
  kind: 'customField',
  param: 'fields',
  trash: 'fields',
  empty: words.noFields,
  load: (page) => readList('customField', page, { deviceTemplateId: product }),
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    { name: 'type', label: words.type, show: ({ fieldType }) => fieldType },
    { name: 'required', label: words.required, show: ({ required }) => (required ? texts.yes : texts.no) },
    { name: 'description', label: texts.description, wrap: true, show: ({ description }) => description ?? '–' },
  ],
  create: () => can('create', 'customField') && making(product),
  verbs: (of) => [can('delete', 'customField') && deletion('customField', of)],
});

const making = (product: string) =>
  creating(words.newField, {
    fields: () => [
      { name: 'name', label: texts.name, required: true },
      { name: 'type', label: words.type, options: types.map((one) => [one, one] as const) },
      { name: 'description', label: texts.description },
      { name: 'required', label: words.requiredHint, tick: 'yes' },
    ],
    save: async ({ name = '', type, description, required }) => {
      const body = { name, fieldType: type as FieldType, description, required: required !== undefined };
      await make('customField', { deviceTemplateId: product, ...body });
    },
  });
