/** Roles: the built-in ones, and those that the account has made. */
import { change, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import type { Chosen } from '../parts/forms/fields.tsx';
import { Select } from '../parts/forms/form.tsx';
import { deletion } from '../parts/lists/deletions.ts';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { creating, type Verb } from '../parts/lists/verbs.tsx';
import { Badge } from '../parts/page/page.tsx';
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
      label: texts.description,
      wrap: true,
      show: ({ description, builtIn }) => (
        <>
          {description} {builtIn && <Badge text={texts.builtIn} />}
        </>
      ),
    },
  ],
  nameOf: ({ id, name }) => nameOfRole(id, name),
  create: () => can('create', 'role') && newRole,
  verbs: (of) => [
    of.builtIn || !can('update', 'role') ? showing(of) : changing(of),
    !of.builtIn && can('delete', 'role') && deletion('role', of, words.deleteSays),
  ],
};

const about = [
  { name: 'name', label: texts.name, required: true },
  { name: 'description', label: texts.description },
];
type Given = Role['rights'];

const newRole = creating(words.new, {
  values: { scope: 'account' },
  fields: ({ scope, from = '' }) => [
    ...about,
    { name: 'scope', label: words.scope, options: Object.entries(words.scopes) },
    { name: 'from', choice: (chosen) => <StartFrom key={scope} scope={scope as Scope} {...chosen} /> },
    <p class="soft">{words.onlyYours}</p>,
    <RightsIn key={`${scope} ${from}`} scope={scope as Scope} from={from} />,
  ],
  save: async ({ name = '', description, scope, from: _, ...ticks }) => {
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

/** A role that is ticked at first, of those of the scope. */
function StartFrom({ scope, ...chosen }: Chosen & { scope: Scope }) {
  const { data = [] } = useLoad(readRoles, []);
  const named = data.filter((role) => role.scope === scope).map(({ id, name }) => [id, nameOfRole(id, name)] as const);
  const value = named.some(([id]) => id === chosen.value) ? chosen.value : '';
  return <Select label={words.startFrom} options={[['', words.nothing], ...named]} {...chosen} value={value} />;
}

/** What roles of a scope can give at most: all that its built-in ones give. `from` is the role whose rights are ticked. */
function RightsIn({ scope, value, from }: { scope: Scope; value?: Rights; from?: string }) {
  const { data = [] } = useLoad(readRoles, []);
  const start = Object.entries(data.find((role) => role.id === from && role.scope === scope)?.rights ?? {});
  const given = start.map(
    ([kind, actions = []]) =>
      [kind, actions.filter((action) => can(action as Parameters<typeof can>[0], kind))] as const,
  );
  const most: Record<string, string[]> = {};
  for (const role of data)
    if (role.builtIn && role.scope === scope)
      for (const [kind, given = []] of Object.entries(role.rights as Rights))
        most[kind] = [...new Set([...(most[kind] ?? []), ...given])];
  return <RightsTable key={data.length} most={most} value={value ?? Object.fromEntries(given)} />;
}
