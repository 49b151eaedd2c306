/** Roles as people are given them: those of a scope that give nothing which the caller does not have. */
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { ErrorNote, Select } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { NameOf } from '../parts/names.tsx';
import { texts } from '../texts.ts';

const words = texts.roles;
const maxRoles = 1000;

export type Scope = 'account' | 'organization';
type Action = Parameters<typeof can>[0];

export async function readRoles() {
  const query = { accountId: accountId.value, pageSize: maxRoles };
  return (await unwrap(api.GET('/api/v1/roles', { params: { query } }))).roles.results ?? [];
}
export type Role = Awaited<ReturnType<typeof readRoles>>[number];

/** Nobody gives a right that they do not have. */
function mayGive({ rights }: Role): boolean {
  return Object.entries(rights).every(([kind, actions]) => actions?.every((action) => can(action as Action, kind)));
}

export function RolePicker({ scope, value }: { scope: Scope; value?: string | undefined }) {
  const { data, error } = useLoad(readRoles, []);
  if (error) return <ErrorNote error={error} />;
  const fit = (data ?? []).filter((role) => role.scope === scope && (mayGive(role) || role.id === value));
  const options = fit.map(({ id, name }) => [id, nameOfRole(id, name)] as const);
  const usual = options.find(([id]) => id === `${scope}:${scope === 'account' ? 'admin' : 'manager'}`)?.[0];
  return (
    <Select
      key={options.length}
      label={words.one}
      name="roleId"
      value={value ?? usual ?? options[0]?.[0]}
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
