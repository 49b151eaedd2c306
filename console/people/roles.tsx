/** Roles: the built-in ones, and those that the account has made. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { Field, Form, Select, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge } from '../parts/page.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { type Rights, RightsTable, rightsIn } from './rights-table.tsx';
import { nameOfRole, type Role, readRoles, type Scope } from './role-picker.tsx';

const words = texts.roles;

async function readPage(page: number) {
  const query = { accountId: accountId.value, page, pageSize };
  return (await unwrap(api.GET('/api/v1/roles', { params: { query } }))).roles;
}

const paramsOf = ({ id, version }: Pick<Role, 'id' | 'version'>) => ({ path: { id }, header: { etag: version } });

type Open = { kind: 'edit' | 'delete'; role: Role };

export function Roles({ round }: { round: number }) {
  const [open, setOpen] = useState<Open>();
  const [own, setOwn] = useState(0);
  const close = () => setOpen(undefined);
  const again = () => {
    setOwn((before) => before + 1);
    close();
  };
  const remove = async (role: Role) => {
    const gone = (await unwrap(api.DELETE('/api/v1/roles/{id}', { params: paramsOf(role) }))).role;
    toast(words.deleted(role.name), () =>
      unwrap(api.POST('/api/v1/trash/roles/{id}/recover', { params: paramsOf(gone) })),
    );
    again();
  };
  return (
    <>
      <Listing<Role>
        label={words.tab}
        on={[round, own]}
        load={readPage}
        columns={[
          { name: 'name', label: texts.name, show: ({ id, name }) => nameOfRole(id, name) },
          { name: 'scope', label: words.scope, show: ({ scope }) => words.scopes[scope as Scope] },
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
        ]}
        nameOf={({ id, name }) => nameOfRole(id, name)}
        actions={(role) => [
          {
            text: role.builtIn || !can('update', 'role') ? words.show : words.change,
            run: () => setOpen({ kind: 'edit', role }),
          },
          !role.builtIn &&
            can('delete', 'role') && { text: texts.delete, run: () => setOpen({ kind: 'delete', role }), danger: true },
        ]}
        empty={<p>{words.none}</p>}
      />
      {open?.kind === 'edit' && <Edit role={open.role} onDone={again} onClose={close} />}
      {open?.kind === 'delete' && (
        <Confirm
          title={words.deleteOf(open.role.name)}
          says={words.deleteSays}
          verb={texts.delete}
          run={() => remove(open.role)}
          onClose={close}
        />
      )}
    </>
  );
}

/** What roles of a scope can give at most: all that its built-in ones give. */
export function largestOf(roles: readonly Role[], scope: Scope): Rights {
  const most: Record<string, string[]> = {};
  for (const role of roles)
    if (role.builtIn && role.scope === scope)
      for (const [kind, given = []] of Object.entries(role.rights as Rights))
        most[kind] = [...new Set([...(most[kind] ?? []), ...given])];
  return most;
}

export function NewRole({ onDone, onClose }: { onDone: () => void; onClose: () => void }) {
  const [scope, setScope] = useState<Scope>('account');
  const { data = [] } = useLoad(readRoles, []);
  const make = async (values: Values) => {
    const { name = '', description } = values;
    const body = { accountId: accountId.value, name, scope, rights: rightsIn(values) as Role['rights'] };
    await unwrap(api.POST('/api/v1/roles', { body: { ...body, ...(description && { description }) } }));
    toast(texts.saved);
    onDone();
  };
  return (
    <Dialog title={words.new} onClose={onClose} wide>
      <Form save={make} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required />
        <Field label={words.description} name="description" />
        <Select
          label={words.scope}
          value={scope}
          options={Object.entries(words.scopes)}
          onText={(text) => setScope(text as Scope)}
        />
        <p class="soft">{words.onlyYours}</p>
        <RightsTable key={scope} most={largestOf(data, scope)} />
      </Form>
    </Dialog>
  );
}

function Edit({ role, onDone, onClose }: { role: Role; onDone: () => void; onClose: () => void }) {
  const mayChange = !role.builtIn && can('update', 'role');
  const { data = [] } = useLoad(readRoles, []);
  const save = async (values: Values) => {
    if (!mayChange) return onClose();
    const { name = role.name, description = null } = values;
    const body = { name, description, rights: rightsIn(values) as Role['rights'] };
    await unwrap(api.PUT('/api/v1/roles/{id}', { params: paramsOf(role), body }));
    toast(texts.saved);
    onDone();
  };
  const most = largestOf(data, role.scope as Scope);
  return (
    <Dialog title={nameOfRole(role.id, role.name)} onClose={onClose} wide>
      <Form save={save} verb={mayChange ? texts.save : texts.close} {...(mayChange && { onCancel: onClose })}>
        {mayChange ? (
          <>
            <p>{words.changeSays}</p>
            <Field label={texts.name} name="name" defaultValue={role.name} required />
            <Field label={words.description} name="description" defaultValue={role.description ?? ''} />
          </>
        ) : (
          <p>{role.description}</p>
        )}
        <RightsTable
          key={data.length}
          most={mayChange ? most : (role.rights as Rights)}
          value={role.rights as Rights}
          fixed={!mayChange}
        />
      </Form>
    </Dialog>
  );
}
