/** The enrollment groups of the account. */
import { api, unwrap } from '../app/api.ts';
import { accountId } from '../app/session.ts';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { NameOf } from '../parts/names.tsx';
import { Badge } from '../parts/page.tsx';
import { texts } from '../texts.ts';
import { type Group, stateOf } from './read.ts';

const words = texts.enrollment;

export function StateBadge({ group }: { group: Group }) {
  return <Badge {...stateOf(group)} />;
}

export function Groups({ round }: { round: number }) {
  return (
    <Listing
      label={words.tabs['']}
      on={[round]}
      every={10_000}
      load={async (page) => {
        const query = { accountId: accountId.value, page, pageSize };
        return (await unwrap(api.GET('/api/v1/enrollment-groups', { params: { query } }))).enrollmentGroups;
      }}
      href={({ id }) => `/enrollment/groups/${id}`}
      columns={[
        { name: 'name', label: texts.name, show: ({ name }) => name },
        { name: 'state', label: words.state, show: (group) => <StateBadge group={group} /> },
        { name: 'proof', label: words.proof, show: ({ proof }) => words.proofs[proof] },
        { name: 'issues', label: words.issues, show: ({ issues }) => words.issued[issues] },
        {
          name: 'product',
          label: texts.devices.product,
          show: ({ deviceTemplateId }) => <NameOf kind="deviceTemplate" id={deviceTemplateId} />,
        },
        {
          name: 'enrolled',
          label: words.enrolled,
          show: ({ enrolledCount, maxDevices }) => words.enrolledOf(enrolledCount, maxDevices),
        },
      ]}
      empty={<p>{words.none}</p>}
    />
  );
}
