/** Who else has a device: people of its organization. */
import { ApiError } from '../app/api.ts';
import { type Entity, make, readList, remove } from '../app/entities.ts';
import { can, me } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { NameOf, nameOf } from '../parts/data/names.tsx';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { ActionButton, ErrorNote, Field, Form, Select, type Values } from '../parts/forms/form.tsx';
import { Badge, Loading } from '../parts/page/shown.tsx';
import { emailsOf } from '../people/emails.ts';
import { texts } from '../words.ts';
import { words } from './words.ts';

/** With which a device is shared. */
const offered = ['organization:viewer', 'organization:operator'] as const;
type Person = Entity<'endUser'> & { email: string };

async function readPeople(organizationId: string): Promise<Person[]> {
  const { results = [] } = await readList('endUser', 1, { organizationId });
  const emails = await emailsOf(results);
  return results.map((one) => ({ ...one, email: emails.get(one.userId) ?? one.name ?? '–' }));
}

/** Who has a login already can be given access by those alone who see all people. */
const hasLogin = (error: unknown) =>
  error instanceof ApiError && error.details.some(({ message }) => message === 'The email address is taken.');

export function Share({ name, organizationId, close }: { name: string; organizationId: string; close: () => void }) {
  const { data, error, reload } = useLoad(() => readPeople(organizationId), [organizationId]);
  const share = async ({ emailAddress = '', roleId }: Values, form: HTMLFormElement) => {
    const body = { organizationId, roleId, createIdmUser: true, idmUserEmail: emailAddress };
    await make('endUser', body).catch((error) => {
      throw hasLogin(error) ? new Error(words.hasLogin(emailAddress)) : error;
    });
    toast(words.shared(emailAddress));
    form.reset();
    reload();
  };
  return (
    <Dialog title={words.shareOf(name)} onClose={close}>
      <p>{words.shareSays(nameOf('organization', organizationId) ?? '…')}</p>
      <Form save={share} verb={words.share}>
        <Field label={texts.signIn.email} name="emailAddress" type="email" autoComplete="off" required />
        <Select
          label={words.role}
          name="roleId"
          options={offered.map((role) => [role, words.roles[role] ?? role] as const)}
        />
      </Form>
      <h3>{words.whoHas}</h3>
      {!data && (error ? <ErrorNote error={error} /> : <Loading />)}
      <ul class="plainlist">
        {data?.map((one) => (
          <li key={one.id}>
            <span>
              {one.email} {one.userId === me.value?.id && <Badge text={words.you} />}
              <br />
              <span class="small soft">{words.roles[one.roleId] ?? <NameOf kind="role" id={one.roleId} />}</span>
            </span>
            {one.userId !== me.value?.id && can('delete', 'endUser') && (
              <ActionButton
                label={words.unshare}
                of={one.email}
                act={async () => {
                  const undo = await remove('endUser', one);
                  toast(words.unshared(one.email), undo);
                  reload();
                }}
                onError={failed}
              />
            )}
          </li>
        ))}
      </ul>
      <CloseButton onClose={close} />
    </Dialog>
  );
}
