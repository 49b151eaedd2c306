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
  const prove = async ({ certificate = '' }: Values) => {
    if (!proving) return;
    const params = { path: { id: proving.id } };
    await done(api.POST('/api/v1/access/certificate-authorities/{id}/proof', { params, body: { certificate } }));
    setProving(undefined);
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
        <Listing<Named & { created: string; kind?: string; state?: string; challenge?: string | null }>
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
                    <button type="button" onClick={() => setProving(one)}>
                      {words.prove}
                    </button>
                  )}
                  <button type="button" class="plain" onClick={() => setDeleting(one)}>
                    {texts.delete}
                  </button>
                </span>
              ),
            },
          ]}
          empty={<p>{words.none[tab]}</p>}
        />
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
      {making && tab !== 'bridges' && (
        <Dialog title={words.new[tab]} onClose={() => setMaking(false)}>
          <Form save={save} verb={texts.create} onCancel={() => setMaking(false)}>
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
      )}
      {proving && (
        <Dialog title={words.proveOf(proving.name)} onClose={() => setProving(undefined)}>
          <Form save={prove} verb={words.prove} onCancel={() => setProving(undefined)}>
            <p>{words.proveHint}</p>
            <Code label={words.challenge} text={proving.challenge ?? ''} />
            <TextArea label="PEM" name="certificate" required />
          </Form>
        </Dialog>
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
