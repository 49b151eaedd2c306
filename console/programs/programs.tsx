/** Programs: applications, identity providers, bridges with their dead letters; CAs as Enrollment shows them. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Authorities } from '../enrollment/authorities.tsx';
import { NewAuthority } from '../enrollment/new-authority.tsx';
import { Code } from '../parts/code.tsx';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { Field, Form, Select, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Badge, Page, Tabs, Time } from '../parts/page.tsx';
import { toast } from '../parts/toast.tsx';
import { RolePicker } from '../people/role-picker.tsx';
import { texts } from '../texts.ts';
import { NewBridge } from './bridge-form.tsx';
import { Bridges } from './bridges.tsx';
import { ProviderGroups } from './provider-groups.tsx';

const words = texts.programs;
type Tab = keyof typeof words.tabs;
/** What each tab is about, in the words of rights. */
const kindOf = {
  '': 'application',
  'identity-providers': 'identityProvider',
  bridges: 'bridge',
  authorities: 'certificateAuthority',
} as const satisfies Record<Tab, string>;
const account = () => ({ accountId: accountId.value });

interface Named {
  id: string;
  version: string;
  name: string;
}

async function remove(tab: Tab, { id, version }: Named): Promise<void> {
  const params = { path: { id }, header: { etag: version } };
  if (tab === '') await unwrap(api.DELETE('/api/v1/applications/{id}', { params: { path: { id } } }));
  else if (tab === 'identity-providers') await unwrap(api.DELETE('/api/v1/identity-providers/{id}', { params }));
  else await unwrap(api.DELETE('/api/v1/bridges/{id}', { params }));
}

/** Those that one form makes and one list shows; bridges and CAs have their own. */
type Plain = '' | 'identity-providers';

/** Makes one; what it gives is shown once, as is what is wrong with it. */
async function make(
  tab: Plain,
  values: Values,
): Promise<{ secret?: string | undefined; problem?: string | undefined }> {
  const { name = '', kind, issuer = '', clientId = '', clientSecret, roleId } = values;
  if (tab === '') {
    const body = { ...account(), name, kind: kind as 'backEnd', ...(roleId && { roleId }) };
    return { secret: (await unwrap(api.POST('/api/v1/applications', { body }))).application.appToken };
  }
  const redirectUris = [`${location.origin}/console/`];
  const body = { ...account(), name, issuer, clientId, redirectUris, ...(clientSecret && { clientSecret }) };
  const { identityProvider } = await unwrap(api.POST('/api/v1/identity-providers', { body }));
  const { issuerProblem } = identityProvider;
  return issuerProblem ? { problem: `${words.issuerProblem(name)} ${issuerProblem}` } : {};
}

async function read(tab: Plain, page: number) {
  const query = { ...account(), page, pageSize };
  if (tab === '') return (await unwrap(api.GET('/api/v1/applications', { params: { query } }))).applications;
  return (await unwrap(api.GET('/api/v1/identity-providers', { params: { query } }))).identityProviders;
}

const isPlain = (tab: Tab): tab is Plain => tab === '' || tab === 'identity-providers';

export function Programs({ tab: asked }: { tab: string }) {
  const tabs = Object.entries(words.tabs).filter(([name]) => can('read', kindOf[name as Tab]));
  const tab = (asked in words.tabs ? asked : '') as Tab;
  const [making, setMaking] = useState(false);
  const [deleting, setDeleting] = useState<Named>();
  const [giving, setGiving] = useState<Shown>();
  const [mapping, setMapping] = useState<Shown>();
  const [secret, setSecret] = useState<string>();
  const [problem, setProblem] = useState<string>();
  const [round, setRound] = useState(0);
  const again = () => {
    toast(texts.saved);
    setMaking(false);
    setRound((before) => before + 1);
  };
  const save = (of: Plain) => async (values: Values) => {
    const { secret, problem } = await make(of, values);
    setSecret(secret);
    setProblem(problem);
    again();
  };
  return (
    <Page
      title={texts.places.programs}
      actions={
        can('create', kindOf[tab]) && (
          <button type="button" class="primary" onClick={() => setMaking(true)}>
            {words.new[tab]}
          </button>
        )
      }
    >
      <Tabs base="/programs" current={tab} tabs={tabs} />
      {secret && (
        <div class="note warn">
          <p>{words.once}</p>
          <Code label={words.token} text={secret} />
        </div>
      )}
      {problem && tab === 'identity-providers' && (
        <p class="note warn" role="alert">
          {problem}
        </p>
      )}
      {tab === 'bridges' && <Bridges round={round} onDelete={setDeleting} />}
      {tab === 'authorities' && <Authorities round={round} />}
      {isPlain(tab) && (
        <ProgramList tab={tab} round={round} onGive={setGiving} onMap={setMapping} onDelete={setDeleting} />
      )}
      {making && tab === 'bridges' && (
        <NewBridge
          onClose={() => setMaking(false)}
          onDone={(made) => {
            setSecret(made);
            again();
          }}
        />
      )}
      {making && tab === 'authorities' && <NewAuthority onClose={() => setMaking(false)} onDone={again} />}
      {making && isPlain(tab) && <NewProgram tab={tab} save={save(tab)} onClose={() => setMaking(false)} />}
      {mapping && (
        <ProviderGroups
          {...mapping}
          onClose={() => {
            setMapping(undefined);
            setRound(round + 1);
          }}
        />
      )}
      {giving && (
        <Role
          of={giving}
          onDone={() => {
            setGiving(undefined);
            again();
          }}
          onClose={() => setGiving(undefined)}
        />
      )}
      {deleting && (
        <Confirm
          title={words.deleteOf(deleting.name)}
          says={words.deleteSays}
          typed={deleting.name}
          verb={texts.delete}
          run={async () => {
            await remove(tab, deleting);
            setRound(round + 1);
          }}
          onClose={() => setDeleting(undefined)}
        />
      )}
    </Page>
  );
}

type Shown = Named & { created: string; kind?: string; roleId?: string | null };

function ProgramList({
  tab,
  round,
  onGive,
  onMap,
  onDelete,
}: {
  tab: Plain;
  round: number;
  onGive: (one: Shown) => void;
  onMap: (one: Shown) => void;
  onDelete: (one: Shown) => void;
}) {
  return (
    <Listing<Shown>
      label={words.tabs[tab]}
      on={[round]}
      load={(page) => read(tab, page)}
      columns={[
        { name: 'name', label: texts.name, show: ({ name }) => name },
        {
          name: 'kind',
          label: words.kind,
          show: ({ kind }) => <Badge text={words.kinds[kind ?? ''] ?? kind ?? '–'} />,
        },
        { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
        {
          name: 'do',
          label: texts.actions,
          show: (one) => (
            <span class="row">
              {one.kind === 'backEnd' && can('update', 'application') && can('read', 'role') && (
                <button
                  type="button"
                  class="plain"
                  aria-label={texts.verbOf(texts.roles.give, one.name)}
                  onClick={() => onGive(one)}
                >
                  {texts.roles.one}
                </button>
              )}
              {tab === 'identity-providers' && can('update', 'identityProvider') && (
                <button
                  type="button"
                  class="plain"
                  aria-label={texts.verbOf(texts.providerGroups.verb, one.name)}
                  onClick={() => onMap(one)}
                >
                  {texts.providerGroups.verb}
                </button>
              )}
              {can('delete', kindOf[tab]) && (
                <button
                  type="button"
                  class="plain"
                  aria-label={texts.verbOf(texts.delete, one.name)}
                  onClick={() => onDelete(one)}
                >
                  {texts.delete}
                </button>
              )}
            </span>
          ),
        },
      ]}
      empty={<p>{words.none[tab]}</p>}
    />
  );
}

function NewProgram({
  tab,
  save,
  onClose,
}: {
  tab: Plain;
  save: (values: Values) => Promise<void>;
  onClose: () => void;
}) {
  const [kind, setKind] = useState<string>('backEnd');
  return (
    <Dialog title={words.new[tab]} onClose={onClose}>
      <Form save={save} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required />
        {tab === '' && (
          <Select label={words.kind} name="kind" value={kind} options={words.applicationKinds} onText={setKind} />
        )}
        {tab === '' && kind === 'backEnd' && can('read', 'role') && <RolePicker scope="account" />}
        {tab === 'identity-providers' && (
          <>
            <Field label={words.issuer} name="issuer" type="url" required />
            <Field label={words.clientId} name="clientId" required />
            <Field label={words.clientSecret} name="clientSecret" type="password" autoComplete="off" />
          </>
        )}
      </Form>
    </Dialog>
  );
}

function Role({ of, onDone, onClose }: { of: Shown; onDone: () => void; onClose: () => void }) {
  const give = async ({ roleId = '' }: Values) => {
    const params = { path: { id: of.id }, header: { etag: of.version } };
    await unwrap(api.PUT('/api/v1/applications/{id}', { params, body: { roleId } }));
    onDone();
  };
  return (
    <Dialog title={texts.roles.giveOf(of.name)} onClose={onClose}>
      <Form save={give} verb={texts.save} onCancel={onClose}>
        <p>{texts.roles.giveSays}</p>
        <RolePicker scope="account" value={of.roleId ?? undefined} />
      </Form>
    </Dialog>
  );
}
