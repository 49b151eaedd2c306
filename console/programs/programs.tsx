/** Programs: applications, identity providers, bridges with their dead letters, certificate authorities. */
import { useState } from 'preact/hooks';
import { api, done } from '../app/api.ts';
import { accountId } from '../app/session.ts';
import { Code } from '../parts/code.tsx';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { Field, Form, Select, TextArea, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Badge, Page, Tabs, Time } from '../parts/page.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { Bridges, NewBridge } from './bridges.tsx';

const words = texts.programs;
type Tab = keyof typeof words.tabs;
const account = () => ({ accountId: accountId.value });

interface Named {
  id: string;
  version: string;
  name: string;
}

async function remove(tab: Tab, { id, version }: Named): Promise<void> {
  const params = { path: { id }, header: { etag: version } };
  if (tab === '') await done(api.DELETE('/api/v1/applications/{id}', { params: { path: { id } } }));
  else if (tab === 'identity-providers') await done(api.DELETE('/api/v1/identity-providers/{id}', { params }));
  else if (tab === 'bridges') await done(api.DELETE('/api/v1/bridges/{id}', { params }));
  else await done(api.DELETE('/api/v1/access/certificate-authorities/{id}', { params }));
}

/** Makes one; what it gives is shown once. */
async function make(tab: Tab, { name = '', kind, issuer = '', clientId = '', clientSecret, certificate = '' }: Values) {
  if (tab === '') {
    const body = { ...account(), name, kind: kind as 'backEnd' };
    return (await done(api.POST('/api/v1/applications', { body }))).application.appToken;
  }
  if (tab === 'identity-providers') {
    const redirectUris = [`${location.origin}/console/`];
    const body = { ...account(), name, issuer, clientId, redirectUris, ...(clientSecret && { clientSecret }) };
    await done(api.POST('/api/v1/identity-providers', { body }));
  } else await done(api.POST('/api/v1/access/certificate-authorities', { body: { ...account(), name, certificate } }));
  return undefined;
}

async function read(tab: Tab, page: number) {
  const query = { ...account(), page, pageSize };
  if (tab === '') return (await done(api.GET('/api/v1/applications', { params: { query } }))).applications;
  if (tab === 'identity-providers')
    return (await done(api.GET('/api/v1/identity-providers', { params: { query } }))).identityProviders;
  return (await done(api.GET('/api/v1/access/certificate-authorities', { params: { query } }))).certificateAuthorities;
}

export function Programs({ tab: asked }: { tab: string }) {
  const tab = (asked in words.tabs ? asked : '') as Tab;
  const [making, setMaking] = useState(false);
  const [deleting, setDeleting] = useState<Named>();
  const [proving, setProving] = useState<Named & { challenge?: string | null }>();
  const [secret, setSecret] = useState<string>();
  const [round, setRound] = useState(0);
  const again = () => {
    toast(texts.saved);
    setMaking(false);
    setRound((before) => before + 1);
  };
  const save = async (values: Values) => {
    setSecret(await make(tab, values));
    again();
  };
  return (
    <Page
      title={texts.places.programs}
      actions={
        <button type="button" class="primary" onClick={() => setMaking(true)}>
          {words.new[tab]}
        </button>
      }
    >
      <Tabs base="/programs" current={tab} tabs={Object.entries(words.tabs)} />
      {secret && (
        <div class="note warn">
          <p>{words.once}</p>
          <Code label={words.token} text={secret} />
        </div>
      )}
      {tab === 'bridges' ? (
        <Bridges round={round} onDelete={setDeleting} />
      ) : (
        <ProgramList tab={tab} round={round} onProve={setProving} onDelete={setDeleting} />
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
      {making && tab !== 'bridges' && <NewProgram tab={tab} save={save} onClose={() => setMaking(false)} />}
      {proving && (
        <Proof
          of={proving}
          onDone={() => {
            setProving(undefined);
            again();
          }}
          onClose={() => setProving(undefined)}
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

type Shown = Named & { created: string; kind?: string; state?: string; challenge?: string | null };

function ProgramList({
  tab,
  round,
  onProve,
  onDelete,
}: {
  tab: Exclude<Tab, 'bridges'>;
  round: number;
  onProve: (one: Shown) => void;
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
          show: ({ kind, state }) => <Badge text={words.kinds[kind ?? state ?? ''] ?? kind ?? state ?? '–'} />,
        },
        { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
        {
          name: 'do',
          label: texts.actions,
          show: (one) => (
            <span class="row">
              {tab === 'authorities' && one.state === 'pending' && (
                <button type="button" aria-label={texts.verbOf(words.prove, one.name)} onClick={() => onProve(one)}>
                  {words.prove}
                </button>
              )}
              <button
                type="button"
                class="plain"
                aria-label={texts.verbOf(texts.delete, one.name)}
                onClick={() => onDelete(one)}
              >
                {texts.delete}
              </button>
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
  tab: Tab;
  save: (values: Values) => Promise<void>;
  onClose: () => void;
}) {
  return (
    <Dialog title={words.new[tab]} onClose={onClose}>
      <Form save={save} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required />
        {tab === '' && <Select label={words.kind} name="kind" options={words.applicationKinds} />}
        {tab === 'identity-providers' && (
          <>
            <Field label={words.issuer} name="issuer" type="url" required />
            <Field label={words.clientId} name="clientId" required />
            <Field label={words.clientSecret} name="clientSecret" type="password" autoComplete="off" />
          </>
        )}
        {tab === 'authorities' && <TextArea label="PEM" name="certificate" required />}
      </Form>
    </Dialog>
  );
}

function Proof({
  of,
  onDone,
  onClose,
}: {
  of: Named & { challenge?: string | null };
  onDone: () => void;
  onClose: () => void;
}) {
  const prove = async ({ certificate = '' }: Values) => {
    const params = { path: { id: of.id } };
    await done(api.POST('/api/v1/access/certificate-authorities/{id}/proof', { params, body: { certificate } }));
    onDone();
  };
  return (
    <Dialog title={words.proveOf(of.name)} onClose={onClose}>
      <Form save={prove} verb={words.prove} onCancel={onClose}>
        <p>{words.proveHint}</p>
        <Code label={words.challenge} text={of.challenge ?? ''} />
        <TextArea label="PEM" name="certificate" required />
      </Form>
    </Dialog>
  );
}
