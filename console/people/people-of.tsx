/** End-users, of all organizations or of one. */
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { pageSize } from '../parts/lists/listing.tsx';
import { NameOf } from '../parts/names.tsx';
import { texts } from '../texts.ts';
import { withEmails } from './emails.ts';
import { PeopleTable } from './people-table.tsx';

const words = texts.people;

async function readEndUsers(page: number, organizationId: string | undefined) {
  const query = { accountId: accountId.value, pageSize, page, ...(organizationId && { organizationId }) };
  return withEmails((await unwrap(api.GET('/api/v1/end-users', { params: { query } }))).endUsers);
}
type EndUser = Awaited<ReturnType<typeof readEndUsers>>['results'][number];

const paramsOf = ({ id, version }: { id: string; version: string }) => ({ path: { id }, header: { etag: version } });

async function remove(of: EndUser) {
  const { endUser } = await unwrap(api.DELETE('/api/v1/end-users/{id}', { params: paramsOf(of) }));
  return () => unwrap(api.POST('/api/v1/trash/end-users/{id}/recover', { params: paramsOf(endUser) }));
}

function move(of: EndUser, organizationId: string) {
  return unwrap(api.PUT('/api/v1/end-users/{id}', { params: paramsOf(of), body: { organizationId } }));
}

function give(of: EndUser, roleId: string) {
  return unwrap(
    api.PUT('/api/v1/end-users/{id}', { params: paramsOf(of), body: { roleId, organizationId: of.organizationId } }),
  );
}

const name = { name: 'name', label: texts.name, show: ({ name }: EndUser) => name ?? '–' };
const organization = {
  name: 'organization',
  label: texts.devices.organization,
  show: ({ organizationId }: EndUser) => (
    <Link href={`/organizations/${organizationId}`}>
      <NameOf kind="organization" id={organizationId} />
    </Link>
  ),
};

export function PeopleOf({ organizationId, round = 0 }: { organizationId?: string; round?: number }) {
  return (
    <PeopleTable
      label={words.tabs['']}
      load={(page) => readEndUsers(page, organizationId)}
      on={[round, organizationId ?? '']}
      says={words.deleteSays}
      columns={organizationId === undefined ? [name, organization] : [name]}
      maySecure={can('update', 'profile')}
      move={can('update', 'endUser') ? move : undefined}
      give={can('update', 'endUser') && can('read', 'role') ? give : undefined}
      scope="organization"
      remove={remove}
      mayRemove={() => can('delete', 'endUser')}
    />
  );
}
