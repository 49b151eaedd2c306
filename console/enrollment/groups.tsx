/** The enrollment groups of the account. */
import { readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { NameOf } from '../parts/data/names.tsx';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { Badge } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { NewGroup } from './new-group.tsx';
import { type Group, stateOf } from './read.ts';

const words = texts.enrollment;

export function StateBadge({ group }: { group: Group }) {
  return <Badge {...stateOf(group)} />;
}

export const groups: EntityList<Group> = {
  label: words.tabs[''],
  kind: 'enrollmentGroup',
  trash: 'enrollment-groups',
  empty: words.none,
  every: 10_000,
  load: (page) => readList('enrollmentGroup', page),
  href: ({ id }) => `/enrollment/groups/${id}`,
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    { name: 'state', label: texts.state, show: (group) => <StateBadge group={group} /> },
    { name: 'proof', label: words.proof, show: ({ proof }) => words.proofs[proof] },
    { name: 'issues', label: words.issues, show: ({ issues }) => words.issued[issues] },
    {
      name: 'product',
      label: texts.product,
      show: ({ deviceTemplateId }) => <NameOf kind="deviceTemplate" id={deviceTemplateId} />,
    },
    {
      name: 'enrolled',
      label: words.enrolled,
      show: ({ enrolledCount, maxDevices }) => words.enrolledOf(enrolledCount, maxDevices),
    },
  ],
  create: () =>
    can('create', 'enrollmentGroup') && {
      text: words.new[''],
      kind: 'primary',
      dialog: (finish, close) => (
        <NewGroup onDone={(id) => finish({ said: '', to: `/enrollment/groups/${id}` })} onClose={close} />
      ),
    },
};
