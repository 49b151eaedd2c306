/** People: end-users and account users, invited or with a password. */
import { useState } from 'preact/hooks';
import { api, done } from '../app/api.js';
import { accountId, can, me } from '../app/session.js';
import { Confirm, Dialog } from '../parts/dialog.js';
import { Field, Form, type Values } from '../parts/form.js';
import { Listing, pageSize } from '../parts/listing.js';
import { Badge, Page, Tabs, Time } from '../parts/page.js';
import { Picker } from '../parts/picker.js';
import { toast } from '../parts/toast.js';
import { texts } from '../texts.js';
import { withEmails } from './emails.js';
import { PeopleOf } from './people-of.js';
import { Security } from './security.js';

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
  return withEmails((await done(api.GET('/api/v1/account-users', { params: { query } }))).accountUsers);
}
type Admin = Awaited<ReturnType<typeof readAdmins>>['results'][number];

function Admins({ round }: { round: number }) {
  const [open, setOpen] = useState<{ kind: 'security' | 'delete'; of: Admin }>();
  const [own, setOwn] = useState(0);
  const close = () => setOpen(undefined);
  const remove = async ({ id, version }: Admin) => {
    await done(api.DELETE('/api/v1/account-users/{id}', { params: { path: { id }, header: { etag: version } } }));
    setOwn(own + 1);
  };
  return (
    <>
      <Listing
        label={words.tabs['account-users']}
        on={[round, own]}
        load={readAdmins}
        columns={[
          {
            name: 'email',
            label: words.email,
            show: ({ email, userId }) => (
              <>
                {email} {userId === me.value?.id && <Badge text={words.you} />}
              </>
            ),
          },
          { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
          {
            name: 'do',
            label: texts.actions,
            show: (of) => (
              <span class="row">
                <button type="button" class="plain" onClick={() => setOpen({ kind: 'security', of })}>
                  {words.security}
                </button>
                {can('delete', 'accountUser') && of.userId !== me.value?.id && (
                  <button type="button" class="plain" onClick={() => setOpen({ kind: 'delete', of })}>
                    {texts.delete}
                  </button>
                )}
              </span>
            ),
          },
        ]}
        empty={<p>{words.none}</p>}
      />
      {open?.kind === 'security' && (
        <Dialog title={words.securityOf(open.of.email)} onClose={close}>
          <Security userId={open.of.userId} />
          <div class="row end">
            <button type="button" onClick={close}>
              {texts.close}
            </button>
          </div>
        </Dialog>
      )}
      {open?.kind === 'delete' && (
        <Confirm
          title={words.deleteOf(open.of.email)}
          says={words.deleteAdminSays}
          typed={open.of.email}
          verb={texts.delete}
          run={() => remove(open.of)}
          onClose={close}
        />
      )}
    </>
  );
}
