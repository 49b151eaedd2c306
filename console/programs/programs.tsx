/** Programs: applications, identity providers, bridges with their dead letters. */
import { Redirect } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { change, type Entity, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Code } from '../parts/codes/code.tsx';
import { useLoad } from '../parts/data/load.ts';
import type { Values } from '../parts/forms/form.tsx';
import { ending } from '../parts/lists/deletions.ts';
import { type EntityList, EntityPage } from '../parts/lists/entity-page.tsx';
import { creating, Once, type Verb } from '../parts/lists/verbs.tsx';
import { Badge, Time } from '../parts/page/page.tsx';
import { giving, roleField } from '../people/role-picker.tsx';
import { texts } from '../texts.ts';
import { bridges } from './bridges.tsx';
import { ProviderGroups } from './provider-groups.tsx';

const words = texts.programs;

const name = { name: 'name', label: texts.name, show: ({ name }: { name: string }) => name };
const created = {
  name: 'created',
  label: texts.created,
  show: ({ created }: { created: string }) => <Time iso={created} />,
};

const applications: EntityList<Entity<'application'>> = {
  label: words.tabs[''],
  kind: 'application',
  empty: words.none[''],
  load: (page) => readList('application', page),
  columns: [
    name,
    { name: 'kind', label: texts.kind, show: ({ kind }) => <Badge text={words.kinds[kind] ?? kind} /> },
    created,
  ],
  create: () => can('create', 'application') && newApplication,
  verbs: (of) => [
    of.kind === 'backEnd' &&
      can('update', 'application') &&
      can('read', 'role') &&
      giving(of, 'account', (roleId) => change('application', of, { roleId })),
    can('delete', 'application') && ending('application', of),
  ],
};

const newApplication = creating(words.new[''], {
  values: { kind: 'backEnd' },
  fields: ({ kind }) => [
    { name: 'name', label: texts.name, required: true },
    { name: 'kind', label: texts.kind, options: words.applicationKinds },
    kind === 'backEnd' && can('read', 'role') && roleField('account'),
  ],
  save: async ({ name = '', kind, roleId }) => {
    const { appToken } = await make('application', { name, kind: kind as 'backEnd', roleId });
    return { note: <Once says={texts.tokenOnce} label={texts.token} text={appToken} /> };
  },
});

const providers: EntityList<Entity<'identityProvider'>> = {
  label: words.tabs['identity-providers'],
  kind: 'identityProvider',
  empty: words.none['identity-providers'],
  load: (page) => readList('identityProvider', page),
  columns: [name, { name: 'issuer', label: words.issuer, wrap: true, show: ({ issuer }) => issuer }, created],
  note: () => <Callback />,
  create: () => can('create', 'identityProvider') && newProvider,
  verbs: (of) => [
    can('update', 'identityProvider') && changing(of),
    can('update', 'identityProvider') && {
      text: texts.providerGroups.verb,
      dialog: (finish, close) => <ProviderGroups {...of} onSaved={finish} onClose={close} />,
    },
    can('delete', 'identityProvider') && ending('identityProvider', of),
  ],
};

/** What is to be registered at a provider, before it is made here. */
function Callback() {
  const { data } = useLoad(() => unwrap(api.GET('/api/v1/oauth2/callback-url')), []);
  if (!data) return null;
  return (
    <>
      <p class="hint">{words.callback}</p>
      <Code label={words.callback} text={data.callbackUrl} />
    </>
  );
}

const providerFields = (kept?: string) => [
  { name: 'name', label: texts.name, required: true },
  { name: 'issuer', label: words.issuer, type: 'url', required: true },
  { name: 'clientId', label: words.clientId, required: true },
  {
    ...{ name: 'clientSecret', label: words.clientSecret, type: 'password', autoComplete: 'off' },
    ...(kept !== undefined && { placeholder: kept }),
  },
];

const problemOf = (name: string, issuerProblem: string | null | undefined) => ({
  note: issuerProblem ? (
    <p class="note warn" role="alert">
      {words.issuerProblem(name)} {issuerProblem}
    </p>
  ) : null,
});

const newProvider = creating(words.new['identity-providers'], {
  fields: () => [<Callback />, ...providerFields()],
  save: async ({ name = '', issuer = '', clientId = '', clientSecret }) => {
    const redirectUris = [`${location.origin}/console/`];
    const { issuerProblem } = await make('identityProvider', { name, issuer, clientId, redirectUris, clientSecret });
    return problemOf(name, issuerProblem);
  },
});

function changing(of: Entity<'identityProvider'>): Verb {
  const save = async ({ name = '', issuer = '', clientId = '', clientSecret }: Values) => {
    const given = { name, issuer, clientId, ...(clientSecret && { clientSecret }) };
    return problemOf(name, (await change('identityProvider', of, given)).issuerProblem);
  };
  const fields = () => providerFields(texts.bridges.kept);
  return { text: texts.edit, form: { title: texts.verbOf(texts.edit, of.name), values: of, fields, save } };
}

const lists = { '': applications, 'identity-providers': providers, bridges };

export function Programs({ tab }: { tab: string }) {
  // CAs have one place.
  if (tab === 'authorities') return <Redirect to="/enrollment/authorities" replace />;
  return <EntityPage title={texts.places.programs} path="/programs" tab={tab} lists={lists} />;
}
