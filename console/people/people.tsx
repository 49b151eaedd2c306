/** People: end-users and account users, invited or with a password. */
import { useState } from 'preact/hooks';
import { api, done } from '../app/api.ts';
import { accountId, can, me } from '../app/session.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Field, Form, type Values } from '../parts/form.tsx';
import { pageSize } from '../parts/lists/listing.tsx';
import { Badge, Page, Tabs } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { PeopleOf } from './people-of.tsx';
import { PeopleTable } from './people-table.tsx';

const words = texts.people;

export function People({ tab }: { tab: string }) {
  const [making, setMaking] = useState(false);
  const [round, setRound] = useState(0);
  const isAdmins = tab === 'account-users';
  const make = async ({ emailAddress = '', password, organizationId = '', name }: Values) => {
    const login = { createIdmUser: true, idmUserEmail: emailAddress, ...(password && { idmUserPassword: password }) };
    const account = { accountId: accountId.value };
    if (isAdmins) await done(api.POST('/api/v1/account-users', { body: { ...account, ...login } }));
    else {
      const body = { ...account, ...login, organizationId, ...(name && { name }) };
      await done(api.POST('/api/v1/end-users', { body }));
    }
    toast(password ? texts.saved : words.invited(emailAddress));
    setMaking(false);
    setRound(round + 1);
  };
  return (
    <Page
      title={texts.places.people}
      actions={
        can('create', isAdmins ? 'accountUser' : 'endUser') && (
          <button type="button" class="primary" onClick={() => setMaking(true)}>
            {isAdmins ? words.newAdmin : words.newEndUser}
          </button>
        )
      }
    >
      {can('read', 'accountUser') && <Tabs base="/people" current={tab} tabs={Object.entries(words.tabs)} />}
      {isAdmins ? <Admins round={round} /> : <PeopleOf round={round} />}
      {making && (
        <Dialog title={isAdmins ? words.newAdmin : words.newEndUser} onClose={() => setMaking(false)}>
          <Form save={make} verb={texts.create} onCancel={() => setMaking(false)}>
            <Field label={words.email} name="emailAddress" type="email" required />
            {!isAdmins && (
              <>
                <Field label={texts.name} name="name" />
                <Picker kind="organization" label={texts.devices.organization} name="organizationId" />
              </>
            )}
            <Field
              label={words.password}
              name="password"
              type="password"
              autoComplete="new-password"
              hint={words.passwordHint}
            />
          </Form>
        </Dialog>
      )}
    </Page>
  );
}

async function readAdmins(page: number) {
  const query = { accountId: accountId.value, pageSize, page };
  const { results = [], ...rest } = (await done(api.GET('/api/v1/account-users', { params: { query } }))).accountUsers;
  return { ...rest, results: results.map((one) => ({ ...one, email: one.emailAddress ?? words.noLogin })) };
}
type Admin = Awaited<ReturnType<typeof readAdmins>>['results'][number];

/** Account users have no trash: the same login is made an admin again. */
async function remove({ id, version, userId }: Admin) {
  await done(api.DELETE('/api/v1/account-users/{id}', { params: { path: { id }, header: { etag: version } } }));
  return () => done(api.POST('/api/v1/account-users', { body: { accountId: accountId.value, userId } }));
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
      maySecure
      remove={remove}
      mayRemove={(one) => can('delete', 'accountUser') && !isSelf(one)}
    />
  );
}
