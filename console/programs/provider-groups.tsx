/** What the groups of an identity provider give, and the token with which it speaks SCIM. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { change, readOne } from '../app/entities.ts';
import { Code } from '../parts/codes/code.tsx';
import { useLoad } from '../parts/data/load.ts';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { ActionButton, Button, ErrorNote, Field, Form, Select, type Values } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { readRoles } from '../people/role-picker.tsx';
import { texts } from '../texts.ts';

const words = texts.providerGroups;
/** A provider replaces its token once a year. */
const tokenLifetime = 365 * 24 * 60 * 60_000;

interface Mapping {
  group: string;
  roleId: string;
  organizationId: string | null;
}

/** A mapping while it is edited; `key` stays when others go. */
interface Line extends Mapping {
  key: number;
}

type Roles = ReadonlyArray<{ id: string; name: string; scope: string }>;

async function read(id: string) {
  const [provider, roles] = await Promise.all([readOne('identityProvider', id), readRoles()]);
  return { provider, roles };
}

export function ProviderGroups({
  id,
  name,
  onSaved,
  onClose,
}: {
  id: string;
  name: string;
  onSaved: () => void;
  onClose: () => void;
}) {
  const { data, error } = useLoad(() => read(id), [id]);
  return (
    <Dialog title={words.titleOf(name)} onClose={onClose} wide>
      <ErrorNote error={error} />
      {data && <Mappings {...data} onSaved={onSaved} />}
      <Scim id={id} />
      <CloseButton onClose={onClose} />
    </Dialog>
  );
}

type Provider = Awaited<ReturnType<typeof read>>['provider'];

function Mappings({ provider, roles, onSaved }: { provider: Provider; roles: Roles; onSaved: () => void }) {
  const [lines, setLines] = useState<Line[]>(provider.mappings.map((one, key) => ({ ...one, key })));
  const edit = (key: number, changes: Partial<Mapping>) =>
    setLines(lines.map((one) => (one.key === key ? { ...one, ...changes } : one)));
  const add = () => {
    const key = Math.max(-1, ...lines.map((one) => one.key)) + 1;
    setLines([...lines, { key, group: '', roleId: firstOf(roles, null), organizationId: null }]);
  };
  const save = async ({ groupsClaim = '' }: Values) => {
    const mappings = lines.map(({ key: _, ...mapping }) => mapping);
    await change('identityProvider', provider, { groupsClaim: groupsClaim === '' ? null : groupsClaim, mappings });
    onSaved();
  };
  return (
    <Form save={save} verb={texts.save}>
      <Field label={words.claim} name="groupsClaim" defaultValue={provider.groupsClaim ?? ''} hint={words.claimHint} />
      {lines.map((line) => (
        <MappingLine
          key={line.key}
          line={line}
          roles={roles}
          onChange={(changes) => edit(line.key, changes)}
          onRemove={() => setLines(lines.filter((one) => one.key !== line.key))}
        />
      ))}
      <Button label={words.add} onClick={add} />
    </Form>
  );
}

const scopeOf = (organizationId: string | null) => (organizationId === null ? 'account' : 'organization');
const firstOf = (roles: Roles, organizationId: string | null) =>
  roles.find(({ scope }) => scope === scopeOf(organizationId))?.id ?? '';

function MappingLine({
  line: { group, roleId, organizationId },
  roles,
  onChange,
  onRemove,
}: {
  line: Mapping;
  roles: Roles;
  onChange: (changes: Partial<Mapping>) => void;
  onRemove: () => void;
}) {
  const options = roles.flatMap(({ id, name, scope }) =>
    scope === scopeOf(organizationId) ? [[id, name] as const] : [],
  );
  const place = (text: string) => {
    const next = text === '' ? null : text;
    // A role of the account is none of an organization.
    onChange({
      organizationId: next,
      ...(scopeOf(next) !== scopeOf(organizationId) && { roleId: firstOf(roles, next) }),
    });
  };
  return (
    <div class="row">
      <Field label={words.group} value={group} required maxLength={255} onText={(text) => onChange({ group: text })} />
      <Picker
        kind="organization"
        label={words.place}
        none={words.account}
        value={organizationId ?? ''}
        onText={place}
      />
      <Select label={texts.role} value={roleId} options={options} onText={(text) => onChange({ roleId: text })} />
      <Button label={texts.remove} class="plain" aria-label={texts.verbOf(texts.remove, group)} onClick={onRemove} />
    </div>
  );
}

function Scim({ id }: { id: string }) {
  const [made, setMade] = useState<{ address: string; token: string }>();
  const [error, setError] = useState<unknown>();
  const make = async () => {
    const body = { expiresAt: new Date(Date.now() + tokenLifetime).toISOString() };
    const params = { path: { id } };
    setMade((await unwrap(api.POST('/api/v1/identity-providers/{id}/scim-token', { params, body }))).scimToken);
    setError(undefined);
  };
  return (
    <section aria-label={words.scim}>
      <h3>{words.scim}</h3>
      <p class="hint">{words.scimHint}</p>
      <ErrorNote error={error} />
      {made ? (
        <div class="note warn">
          <p>{words.once}</p>
          <Code label={texts.address} text={made.address} />
          <Code label={texts.token} text={made.token} />
        </div>
      ) : (
        <ActionButton label={words.makeToken} act={make} onError={setError} />
      )}
    </section>
  );
}
