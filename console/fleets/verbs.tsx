/** What is done with fleets, in their list and on their pages; Devices makes new ones, too. */
import { change, type Entity, make } from '../app/entities.ts';
import { can, isCustomer } from '../app/session.ts';
import { NameLink } from '../parts/data/names.tsx';
import type { FieldOf } from '../parts/forms/fields.tsx';
import type { Values } from '../parts/forms/form.tsx';
import { deletion } from '../parts/lists/deletions.ts';
import { creating, type Verbs } from '../parts/lists/verbs.tsx';
import { texts } from '../texts.ts';

const words = texts.fleets;

const fields: readonly FieldOf[] = [
  { name: 'name', label: texts.name, required: true },
  { name: 'description', label: texts.description },
  { name: 'filter', label: words.filter, hint: words.filterHint, isLong: true, required: true },
];

/** People of organizations make fleets of these alone. */
const owner = (): FieldOf => ({
  ...{ name: 'organizationId', label: words.of, pick: 'organization' },
  ...(!isCustomer() && { none: words.ofAccount }),
});

export const newFields = () => [...fields, owner()];

export async function makeFleet({ name = '', description, filter = '', organizationId }: Values) {
  const { id } = await make('fleet', { name, description, filter, organizationId });
  return { said: words.made(name), to: `/fleets/${id}` };
}

export const newFleet = creating(words.new, { fields: newFields, save: makeFleet });

export const verbsOf = (of: Entity<'fleet'>, to?: string): Verbs => [
  can('update', 'fleet') && {
    text: texts.edit,
    form: {
      title: of.name,
      values: of,
      fields: () => fields,
      save: async ({ name = '', filter = '', description }) => {
        await change('fleet', of, { name, filter, description: description ?? null });
      },
    },
  },
  can('delete', 'fleet') && deletion('fleet', of, undefined, to),
];

export const Owner = ({ of: { organizationId } }: { of: { organizationId: string | null } }) =>
  organizationId === null ? <span>{words.ofAccount}</span> : <NameLink kind="organization" id={organizationId} />;
