/** Roles: the built-in ones, and those that the account has made. */
import { change, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { CloseButton, Dialog } from '../parts/dialog.tsx';
import type { EntityList } from '../parts/entity-page.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge } from '../parts/page.tsx';
import { creating, deletion, type Verb } from '../parts/verbs.tsx';
import { texts } from '../texts.ts';
import { type Rights, RightsTable, rightsIn } from './rights-table.tsx';
import { nameOfRole, type Role, readRoles, type Scope } from './role-picker.tsx';

const words = texts.roles;

export const roles: EntityList<Role> = {
  label: words.tab,
  kind: 'role',
  trash: 'roles',
  empty: words.none,
  load: (page) => readList('role', page),
  columns: [
    { name: 'name', label: texts.name, show: ({ id, name }) => nameOfRole(id, name) },
    { name: 'scope', label: words.scope, show: ({ scope }) => words.scopes[scope] },
    {
      name: 'description',
      label: words.description,
      wrap: true,
      show: ({ description, builtIn }) => (
        <>
          {description} {builtIn && <Badge text={words.isBuiltIn} />}
        </>
      ),
    },
  ],
  nameOf: ({ id, name }) => nameOfRole(id, name),
  create: () => can('create', 'role') && newRole,
  verbs: (of) => [
    of.builtIn || !can('update', 'role') ? showing(of) : changing(of),
    !of.builtIn && can('delete', 'role') && deletion('role', of, words),
  ],
};

const about = [
  { name: 'name', label: texts.name, required: true },
  { name: 'description', label: words.description },
];
type Given = Role['rights'];

const newRole = creating(words.new, {
  values: { scope: 'account' },
  fields: ({ scope }) => [
    ...about,
    { name: 'scope', label: words.scope, options: Object.entries(words.scopes) },
    <p class="soft">{words.onlyYours}</p>,
    <RightsIn key={scope} scope={scope as Scope} />,
  ],
  save: async ({ name = '', description, scope, ...ticks }) => {
    await make('role', { name, description, scope: scope as Scope, rights: rightsIn(ticks) as Given });
  },
});

function changing(of: Role): Verb {
  const form: Verb['form'] = {
    title: of.name,
    values: of,
    fields: () => [words.changeSays, ...about, <RightsIn scope={of.scope} value={of.rights} />],
    save: async ({ name, description = null, ...ticks }: Record<string, string | null>) => {
      await change('role', of, { name: name ?? of.name, description, rights: rightsIn(ticks) as Given });
    },
  };
  return { text: words.change, form };
}

function showing({ id, name, description, rights }: Role): Verb {
  const dialog = (_: unknown, close: () => void) => (
    <Dialog title={nameOfRole(id, name)} onClose={close}>
      <p>{description}</p>
      <RightsTable most={rights} value={rights} fixed />
      <CloseButton onClose={close} primary />
    </Dialog>
  );
  return { text: words.show, dialog };
}

/** What roles of a scope can give at most: all that its built-in ones give. */
function RightsIn({ scope, value }: { scope: Scope; value?: Rights }) {
  const { data = [] } = useLoad(readRoles, []);
  const most: Record<string, string[]> = {};
  for (const role of data)
    if (role.builtIn && role.scope === scope)
      for (const [kind, given = []] of Object.entries(role.rights as Rights))
        most[kind] = [...new Set([...(most[kind] ?? []), ...given])];
  return <RightsTable key={data.length} most={most} value={value} />;
}
