/** People: end-users and account users, invited or with a password, and their roles. */
import { change, type Entity, make, readList, remove, type Slice } from '../app/entities.ts';
import { can, me } from '../app/session.ts';
import { NameLink } from '../parts/data/names.tsx';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { Ago } from '../parts/formats/ago.tsx';
import type { Values } from '../parts/forms/form.tsx';
import { NewPassword } from '../parts/forms/new-password.tsx';
import { deletion } from '../parts/lists/deletions.ts';
import { type EntityList, EntityPage } from '../parts/lists/entity-page.tsx';
import { creating, type Verb } from '../parts/lists/verbs.tsx';
import { Badge } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { emailsOf } from './emails.ts';
import { giving, RoleName, roleField, type Scope } from './role-picker.tsx';
import { roles } from './roles.tsx';
import { Security } from './security.tsx';

const words = texts.people;
/** Milliseconds. */
const liveEvery = 10_000;

/** The name by which people are called: their email address. */
type Named<T> = T & { name: string };
type EndUser = Named<Omit<Entity<'endUser'>, 'name'>> & { ownName: string | null };
type Admin = Named<Entity<'accountUser'>>;

/** The email addresses of a whole page are read at once. */
async function readEndUsers(page: number, organizationId: string | undefined): Promise<Slice<EndUser>> {
  const { results = [], ...rest } = await readList('endUser', page, { organizationId });
  const emails = await emailsOf(results);
  const nameOf = (userId: string | null) => emails.get(userId) ?? words.noLogin;
  return { ...rest, results: results.map((one) => ({ ...one, ownName: one.name ?? null, name: nameOf(one.userId) })) };
}

async function readAdmins(page: number): Promise<Slice<Admin>> {
  const { results = [], ...rest } = await readList('accountUser', page);
  return { ...rest, results: results.map((one) => ({ ...one, name: one.emailAddress ?? words.noLogin })) };
}

const isSelf = ({ userId }: { userId: string | null }) => userId === me.value?.id;

const email = {
  name: 'email',
  label: words.email,
  show: (of: Named<{ userId: string | null }>) => (
    <>
      {of.name} {isSelf(of) && <Badge text={words.you} />}
    </>
  ),
};
const name = { name: 'name', label: texts.name, show: ({ ownName }: EndUser) => ownName ?? '–' };
const organization = {
  name: 'organization',
  label: texts.organization,
  show: ({ organizationId }: EndUser) => <NameLink kind="organization" id={organizationId} />,
};
const others = [
  { name: 'role', label: texts.role, show: ({ roleId }: { roleId: string }) => <RoleName id={roleId} /> },
  { name: 'created', label: texts.created, show: ({ created }: { created: string }) => <Ago iso={created} /> },
];

/** End-users, of all organizations or of one. */
export const endUsers = (organizationId?: string): EntityList<EndUser> => ({
  label: words.tabs[''],
  kind: 'endUser',
  trash: organizationId === undefined ? 'people' : undefined,
  empty: words.none,
  every: liveEvery,
  load: (page) => readEndUsers(page, organizationId),
  columns: organizationId === undefined ? [email, name, organization, ...others] : [email, name, ...others],
  create: () => organizationId === undefined && can('create', 'endUser') && inviting('organization'),
  verbs: (of) => [
    can('update', 'profile') && login(of, true),
    can('update', 'endUser') && moving(of),
    can('update', 'endUser') &&
      can('read', 'role') &&
      giving(of, 'organization', (roleId) => change('endUser', of, { roleId, organizationId: of.organizationId })),
    can('delete', 'endUser') && deletion('endUser', of, words.deleteSays),
  ],
});

/** Account users have no trash: the same login is made an admin again. */
const admins: EntityList<Admin> = {
  label: words.tabs['account-users'],
  kind: 'accountUser',
  empty: words.none,
  every: liveEvery,
  load: readAdmins,
  columns: [email, ...others],
  create: () => can('create', 'accountUser') && inviting('account'),
  verbs: (of) => [
    can('read', 'identity') && login(of, false),
    can('update', 'accountUser') &&
      can('read', 'role') &&
      giving(of, 'account', (roleId) => change('accountUser', of, { roleId })),
    can('delete', 'accountUser') &&
      !isSelf(of) && {
        text: texts.delete,
        kind: 'danger',
        ask: { title: texts.deleteOf(of.name), says: words.deleteAdminSays },
        run: async () => {
          await remove('accountUser', of);
          const undo = () => make('accountUser', { userId: of.userId });
          return { said: texts.wasDeleted(of.name), undo, stays: { of: of.name } };
        },
      },
  ],
};

function login({ userId, name }: Named<{ userId: string | null }>, isEndUser: boolean): Verb | false {
  if (userId === null) return false;
  const dialog = (_: unknown, close: () => void) => (
    <Dialog title={words.securityOf(name)} onClose={close}>
      <Security userId={userId} isEndUser={isEndUser} />
      <CloseButton onClose={close} />
    </Dialog>
  );
  return { text: words.security, dialog };
}

function moving(of: EndUser): Verb {
  const form: Verb['form'] = {
    title: words.moveOf(of.name),
    verb: texts.move,
    values: of,
    fields: () => [words.moveSays, { name: 'organizationId', label: texts.organization, pick: 'organization' }],
    save: async ({ organizationId = '' }) => {
      await change('endUser', of, { organizationId });
    },
  };
  return { text: texts.move, form };
}

function inviting(scope: Scope): Verb {
  const isAdmin = scope === 'account';
  const save = async ({ emailAddress = '', password, organizationId = '', name, roleId }: Values) => {
    const login = { createIdmUser: true, idmUserEmail: emailAddress, idmUserPassword: password };
    if (isAdmin) await make('accountUser', { roleId, ...login });
    else await make('endUser', { roleId, ...login, organizationId, name });
    return { said: password ? texts.saved : words.invited(emailAddress) };
  };
  return creating(isAdmin ? words.newAdmin : words.newEndUser, {
    fields: () => [
      { name: 'emailAddress', label: words.email, type: 'email', autoComplete: 'username', required: true },
      !isAdmin && { name: 'name', label: texts.name },
      !isAdmin && { name: 'organizationId', label: texts.organization, pick: 'organization' },
      can('read', 'role') && roleField(scope),
      <NewPassword of={undefined} label={words.password} name="password" hint={words.passwordHint} />,
    ],
    save,
  });
}

const lists = { '': endUsers(), 'account-users': admins, roles };

export function People({ tab }: { tab: string }) {
  return <EntityPage title={texts.places.people} path="/people" tab={tab} lists={lists} />;
}
