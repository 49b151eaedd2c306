/** End-users and account users: made, invited, deleted. */
import { useState } from 'preact/hooks';
import { api, done } from '../app/api.js';
import { accountId, can } from '../app/session.js';
import { Confirm, Dialog } from '../parts/dialog.js';
import { Field, Form, type Values } from '../parts/form.js';
import { Listing, pageSize } from '../parts/listing.js';
import { Page, Tabs, Time } from '../parts/page.js';
import { Picker } from '../parts/picker.js';
import { toast } from '../parts/toast.js';
import { texts } from '../texts.js';

const words = texts.people;

interface Person {
  id: string;
  version: string;
  created: string;
  email: string;
}

export function People({ tab }: { tab: string }) {
  const [making, setMaking] = useState(false);
  const [deleting, setDeleting] = useState<Person>();
  const [round, setRound] = useState(0);
  const isAdmins = tab === 'account-users';
  const query = { accountId: accountId.value, pageSize };
  const make = async ({ emailAddress = '', password, organizationId = '' }: Values) => {
    const login = { createIdmUser: true, idmUserEmail: emailAddress, ...(password && { idmUserPassword: password }) };
    const account = { accountId: accountId.value };
    if (isAdmins) await done(api.POST('/api/v1/account-users', { body: { ...account, ...login } as never }));
    else await done(api.POST('/api/v1/end-users', { body: { ...account, ...login, organizationId } as never }));
    toast(password ? texts.saved : words.invited(emailAddress));
    setMaking(false);
    setRound(round + 1);
  };
  const remove = async ({ id, version }: Person) => {
    const params = { path: { id }, header: { etag: version } };
    if (isAdmins) await done(api.DELETE('/api/v1/account-users/{id}', { params }));
    else await done(api.DELETE('/api/v1/end-users/{id}', { params }));
    setRound(round + 1);
  };
  const emailOf = { name: 'email', label: words.email, show: ({ email }: Person) => email };
  const more = [
    { name: 'created', label: texts.created, show: ({ created }: Person) => <Time iso={created} /> },
    {
      name: 'do',
      label: texts.actions,
      show: (one: Person) => (
        <button type="button" class="plain" onClick={() => setDeleting(one)}>
          {texts.delete}
        </button>
      ),
    },
  ];
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
      {isAdmins ? (
        <Listing
          label={words.tabs['account-users']}
          on={[round]}
          load={async (page) =>
            withEmails(
              (await done(api.GET('/api/v1/account-users', { params: { query: { ...query, page } } }))).accountUsers,
            )
          }
          columns={[emailOf, ...more]}
          empty={<p>{words.none}</p>}
        />
      ) : (
        <Listing
          label={words.tabs['']}
          on={[round]}
          load={async (page) =>
            withEmails((await done(api.GET('/api/v1/end-users', { params: { query: { ...query, page } } }))).endUsers)
          }
          columns={[emailOf, ...more]}
          empty={<p>{words.none}</p>}
        />
      )}
      {making && (
        <Dialog title={isAdmins ? words.newAdmin : words.newEndUser} onClose={() => setMaking(false)}>
          <Form save={make} verb={texts.create} onCancel={() => setMaking(false)}>
            <Field label={words.email} name="emailAddress" type="email" required />
            <Field
              label={words.password}
              name="password"
              type="password"
              autoComplete="new-password"
              hint={words.passwordHint}
            />
            {!isAdmins && <Picker kind="organization" label={texts.devices.organization} name="organizationId" />}
          </Form>
        </Dialog>
      )}
      {deleting && (
        <Confirm
          title={words.deleteTitle}
          says={words.deleteSays}
          verb={texts.delete}
          run={() => remove(deleting)}
          onClose={() => setDeleting(undefined)}
        />
      )}
    </Page>
  );
}

/** The email addresses of people, read for a whole page at once. */
async function withEmails<T extends { userId: string | null }>({
  results = [],
  ...rest
}: {
  results?: T[];
  meta?: { count: number };
}) {
  const userIds = results.flatMap(({ userId }) => userId ?? []);
  const people = userIds.length === 0 ? [] : (await done(api.POST('/api/v1/users/batch', { body: { userIds } }))).users;
  const emails = new Map(people.map(({ userId, emailAddress }) => [userId, emailAddress]));
  return { ...rest, results: results.map((one) => ({ ...one, email: emails.get(one.userId ?? '') ?? words.noLogin })) };
}
