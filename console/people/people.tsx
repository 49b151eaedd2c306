/** People: end-users and account users, invited or with a password. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId, can, me } from '../app/session.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Field, Form, type Values } from '../parts/form.tsx';
import { pageSize } from '../parts/lists/listing.tsx';
import { NewPassword } from '../parts/new-password.tsx';
import { Badge, Page, Tabs } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { PeopleOf } from './people-of.tsx';
import { PeopleTable } from './people-table.tsx';
import { RolePicker } from './role-picker.tsx';
import { NewRole, Roles } from './roles.tsx';

const words = texts.people;

export function People({ tab }: { tab: string }) {
  const [making, setMaking] = useState(false);
  const [round, setRound] = useState(0);
  const isAdmins = tab === 'account-users';
  const isRoles = tab === 'roles';
  const made = isRoles ? 'role' : isAdmins ? 'accountUser' : 'endUser';
  const verb = isRoles ? texts.roles.new : isAdmins ? words.newAdmin : words.newEndUser;
  const tabs = Object.entries(words.tabs).filter(
    ([name]) => name === '' || can('read', name === 'roles' ? 'role' : 'accountUser'),
  );
  const end = () => {
    setMaking(false);
    setRound(round + 1);
  };
  const make = async ({ emailAddress = '', password, organizationId = '', name, roleId }: Values) => {
    const login = { createIdmUser: true, idmUserEmail: emailAddress, ...(password && { idmUserPassword: password }) };
    const account = { accountId: accountId.value, ...(roleId && { roleId }) };
    if (isAdmins) await unwrap(api.POST('/api/v1/account-users', { body: { ...account, ...login } }));
    else {
      const body = { ...account, ...login, organizationId, ...(name && { name }) };
      await unwrap(api.POST('/api/v1/end-users', { body }));
    }
    toast(password ? texts.saved : words.invited(emailAddress));
    end();
  };
  return (
    <Page
      title={texts.places.people}
      trash={isRoles ? 'roles' : isAdmins ? undefined : 'people'}
      actions={
        can('create', made) && (
          <button type="button" class="primary" onClick={() => setMaking(true)}>
            {verb}
          </button>
        )
      }
    >
      {tabs.length > 1 && <Tabs base="/people" current={tab} tabs={tabs} />}
      {isRoles && <Roles round={round} />}
      {isAdmins && <Admins round={round} />}
      {!isRoles && !isAdmins && <PeopleOf round={round} />}
      {making && isRoles && <NewRole onDone={end} onClose={() => setMaking(false)} />}
      {making && !isRoles && (
        <Dialog title={verb} onClose={() => setMaking(false)}>
          <Form save={make} verb={texts.create} onCancel={() => setMaking(false)}>
            <Field label={words.email} name="emailAddress" type="email" autoComplete="username" required />
            {!isAdmins && (
              <>
                <Field label={texts.name} name="name" />
                <Picker kind="organization" label={texts.devices.organization} name="organizationId" />
              </>
            )}
            {can('read', 'role') && <RolePicker scope={isAdmins ? 'account' : 'organization'} />}
            <NewPassword of={undefined} label={words.password} name="password" hint={words.passwordHint} />
          </Form>
        </Dialog>
      )}
    </Page>
  );
}

async function readAdmins(page: number) {
  const query = { accountId: accountId.value, pageSize, page };
  const { results = [], ...rest } = (await unwrap(api.GET('/api/v1/account-users', { params: { query } })))
    .accountUsers;
  return { ...rest, results: results.map((one) => ({ ...one, email: one.emailAddress ?? words.noLogin })) };
}
type Admin = Awaited<ReturnType<typeof readAdmins>>['results'][number];

/** Account users have no trash: the same login is made an admin again. */
async function remove({ id, version, userId }: Admin) {
  await unwrap(api.DELETE('/api/v1/account-users/{id}', { params: { path: { id }, header: { etag: version } } }));
  return () => unwrap(api.POST('/api/v1/account-users', { body: { accountId: accountId.value, userId } }));
}

function give({ id, version }: Admin, roleId: string) {
  const params = { path: { id }, header: { etag: version } };
  return unwrap(api.PUT('/api/v1/account-users/{id}', { params, body: { roleId } }));
}

function Admins({ round }: { round: number }) {
  const isSelf = ({ userId }: Admin) => userId === me.value?.id;
  return (
    <PeopleTable
      label={words.tabs['account-users']}
      load={readAdmins}
      on={[round]}
      says={words.deleteAdminSays}
      columns={[]}
      badge={(one) => isSelf(one) && <Badge text={words.you} />}
      maySecure={can('read', 'identity')}
      give={can('update', 'accountUser') && can('read', 'role') ? give : undefined}
      scope="account"
      remove={remove}
      mayRemove={(one) => can('delete', 'accountUser') && !isSelf(one)}
    />
  );
}
