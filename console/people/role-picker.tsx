/** Roles as people are given them: those of a scope that give nothing which the caller does not have. */
import { type Entity, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { NameOf } from '../parts/data/names.tsx';
import type { Chosen, FieldOf } from '../parts/forms/fields.tsx';
import { ErrorNote, Select, type Values } from '../parts/forms/form.tsx';
import type { Verb } from '../parts/lists/verbs.tsx';
import { texts } from '../texts.ts';

const words = texts.roles;
const maxRoles = 1000;

export type Scope = 'account' | 'organization';
type Action = Parameters<typeof can>[0];

export type Role = Entity<'role'>;

export const readRoles = async (): Promise<Role[]> => (await readList('role', 1, { pageSize: maxRoles })).results ?? [];

/** Nobody gives a right that they do not have. */
function mayGive({ rights }: Role): boolean {
  return Object.entries(rights).every(([kind, actions]) => actions?.every((action) => can(action as Action, kind)));
}

/** The role of somebody, or of a program; `given` is the one that they have. */
export const roleField = (scope: Scope, given?: string | null): FieldOf => ({
  name: 'roleId',
  choice: (chosen) => <RolePicker scope={scope} given={given ?? undefined} {...chosen} />,
});

/** Gives somebody another role. */
export function giving(
  { name, roleId }: { name: string; roleId?: string | null },
  scope: Scope,
  give: (roleId: string) => Promise<unknown>,
): Verb {
  const save = async ({ roleId = '' }: Values) => {
    await give(roleId);
  };
  const fields = () => [words.giveSays, roleField(scope, roleId)];
  return { text: words.give, form: { title: words.giveOf(name), fields, save } };
}

function RolePicker({ scope, given, ...chosen }: Chosen & { scope: Scope; given: string | undefined }) {
  const { data, error } = useLoad(readRoles, []);
  if (error) return <ErrorNote error={error} />;
  const fit = (data ?? []).filter((role) => role.scope === scope && (mayGive(role) || role.id === given));
  const options = fit.map(({ id, name }) => [id, nameOfRole(id, name)] as const);
  const usual = options.find(([id]) => id === `${scope}:${scope === 'account' ? 'admin' : 'manager'}`)?.[0];
  return (
    <Select
      key={options.length}
      label={texts.role}
      {...chosen}
      value={chosen.value ?? given ?? usual ?? options[0]?.[0]}
      options={options}
      busy={data === undefined}
    />
  );
}

/** Built-in roles have names in the texts of the page. */
export function nameOfRole(id: string, name: string): string {
  return words.builtIn[id] ?? name;
}

/** The name of a role by its id, for a list. */
export function RoleName({ id }: { id: string }) {
  return <span>{words.builtIn[id] ?? <NameOf kind="role" id={id} />}</span>;
}
