/** Programs: applications, identity providers, bridges with their dead letters; CAs as Enrollment shows them. */
import { change, type Entity, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { authorities } from '../enrollment/authorities.tsx';
import { type EntityList, EntityPage } from '../parts/entity-page.tsx';
import { Badge, Time } from '../parts/page.tsx';
import { creating, Once } from '../parts/verbs.tsx';
import { giving, roleField } from '../people/role-picker.tsx';
import { texts } from '../texts.ts';
import { bridges } from './bridges.tsx';
import { ending } from './ending.ts';
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
    { name: 'kind', label: words.kind, show: ({ kind }) => <Badge text={words.kinds[kind] ?? kind} /> },
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
    { name: 'kind', label: words.kind, options: words.applicationKinds },
    kind === 'backEnd' && can('read', 'role') && roleField('account'),
  ],
  save: async ({ name = '', kind, roleId }) => {
    const { appToken } = await make('application', { name, kind: kind as 'backEnd', roleId });
    return { note: <Once says={words.once} label={words.token} text={appToken} /> };
  },
});

const providers: EntityList<Entity<'identityProvider'>> = {
  label: words.tabs['identity-providers'],
  kind: 'identityProvider',
  empty: words.none['identity-providers'],
  load: (page) => readList('identityProvider', page),
  columns: [name, { name: 'issuer', label: words.issuer, wrap: true, show: ({ issuer }) => issuer }, created],
  create: () => can('create', 'identityProvider') && newProvider,
  verbs: (of) => [
    can('update', 'identityProvider') && {
      text: texts.providerGroups.verb,
      dialog: (finish, close) => <ProviderGroups {...of} onSaved={finish} onClose={close} />,
    },
    can('delete', 'identityProvider') && ending('identityProvider', of),
  ],
};

const newProvider = creating(words.new['identity-providers'], {
  fields: () => [
    { name: 'name', label: texts.name, required: true },
    { name: 'issuer', label: words.issuer, type: 'url', required: true },
    { name: 'clientId', label: words.clientId, required: true },
    { name: 'clientSecret', label: words.clientSecret, type: 'password', autoComplete: 'off' },
  ],
  save: async ({ name = '', issuer = '', clientId = '', clientSecret }) => {
    const redirectUris = [`${location.origin}/console/`];
    const { issuerProblem } = await make('identityProvider', { name, issuer, clientId, redirectUris, clientSecret });
    const problem = issuerProblem && (
      <p class="note warn" role="alert">
        {words.issuerProblem(name)} {issuerProblem}
      </p>
    );
    return { note: problem || null };
  },
});

const lists = { '': applications, 'identity-providers': providers, bridges, authorities };

export function Programs({ tab }: { tab: string }) {
  return <EntityPage title={texts.places.programs} path="/programs" tab={tab} lists={lists} />;
}
