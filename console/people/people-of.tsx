/** End-users, of all organizations or of one: who they are, where, and what can be done for them. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, done } from '../app/api.js';
import { accountId, can } from '../app/session.js';
import { Confirm, Dialog } from '../parts/dialog.js';
import { Form, type Values } from '../parts/form.js';
import { Listing, pageSize } from '../parts/listing.js';
import { useLoad } from '../parts/load.js';
import { Time } from '../parts/page.js';
import { Picker, readOrganizations } from '../parts/picker.js';
import { toast } from '../parts/toast.js';
import { texts } from '../texts.js';
import { withEmails } from './emails.js';
import { Security } from './security.js';

const words = texts.people;

async function readEndUsers(page: number, organizationId: string | undefined) {
  const query = { accountId: accountId.value, pageSize, page, ...(organizationId && { organizationId }) };
  return withEmails((await done(api.GET('/api/v1/end-users', { params: { query } }))).endUsers);
}
type Person = Awaited<ReturnType<typeof readEndUsers>>['results'][number];

export function PeopleOf({ organizationId, round = 0 }: { organizationId?: string; round?: number }) {
  const [open, setOpen] = useState<{ kind: 'security' | 'move' | 'delete'; of: Person }>();
  const [own, setOwn] = useState(0);
  const close = () => setOpen(undefined);
  const { data: organizations = [] } = useLoad(readOrganizations, []);
  const names = new Map(organizations.map(({ id, name }) => [id, name]));
  const paramsOf = ({ id, version }: Person) => ({ path: { id }, header: { etag: version } });
  const move = async (of: Person, { organizationId = '' }: Values) => {
    await done(api.PUT('/api/v1/end-users/{id}', { params: paramsOf(of), body: { organizationId } }));
    toast(texts.saved);
    setOwn(own + 1);
    close();
  };
  const remove = async (of: Person) => {
    const { endUser } = await done(api.DELETE('/api/v1/end-users/{id}', { params: paramsOf(of) }));
    setOwn(own + 1);
    toast(words.deleted(of.email), async () => {
      const params = { path: { id: of.id }, header: { etag: endUser.version } };
      await done(api.POST('/api/v1/trash/end-users/{id}/recover', { params }));
      setOwn((before) => before + 1);
    });
  };
  return (
    <>
      <Listing
        label={words.tabs['']}
        on={[round, own, organizationId ?? '']}
        load={(page) => readEndUsers(page, organizationId)}
        columns={[
          { name: 'email', label: words.email, show: ({ email }) => email },
          { name: 'name', label: texts.name, show: ({ name }) => name ?? '–' },
          ...(organizationId === undefined
            ? [
                {
                  name: 'organization',
                  label: texts.devices.organization,
                  show: ({ organizationId: id }: Person) => (
                    <Link href={`/organizations/${id}`}>{names.get(id) ?? id}</Link>
                  ),
                },
              ]
            : []),
          { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
          {
            name: 'do',
            label: texts.actions,
            show: (of) => (
              <span class="row">
                {of.userId && can('update', 'profile') && (
                  <button type="button" class="plain" onClick={() => setOpen({ kind: 'security', of })}>
                    {words.security}
                  </button>
                )}
                {can('update', 'endUser') && (
                  <button type="button" class="plain" onClick={() => setOpen({ kind: 'move', of })}>
                    {texts.move}
                  </button>
                )}
                {can('delete', 'endUser') && (
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
      {open?.kind === 'security' && open.of.userId && (
        <Dialog title={words.securityOf(open.of.email)} onClose={close}>
          <Security userId={open.of.userId} />
          <div class="row end">
            <button type="button" onClick={close}>
              {texts.close}
            </button>
          </div>
        </Dialog>
      )}
      {open?.kind === 'move' && (
        <Dialog title={words.moveOf(open.of.email)} onClose={close}>
          <Form save={(values) => move(open.of, values)} verb={texts.move} onCancel={close}>
            <p>{words.moveSays}</p>
            <Picker
              kind="organization"
              label={texts.devices.organization}
              name="organizationId"
              value={open.of.organizationId}
            />
          </Form>
        </Dialog>
      )}
      {open?.kind === 'delete' && (
        <Confirm
          title={words.deleteOf(open.of.email)}
          says={words.deleteSays}
          verb={texts.delete}
          run={() => remove(open.of)}
          onClose={close}
        />
      )}
    </>
  );
}
