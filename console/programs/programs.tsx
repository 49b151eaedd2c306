/** Programs: applications, identity providers, bridges with their dead letters, certificate authorities. */
import { useState } from 'preact/hooks';
import { api, done } from '../app/api.js';
import { accountId } from '../app/session.js';
import { Code } from '../parts/code.js';
import { Confirm, Dialog } from '../parts/dialog.js';
import { Act, Field, Form, Select, TextArea, type Values } from '../parts/form.js';
import { Listing, pageSize } from '../parts/listing.js';
import { Badge, Page, Tabs, Time } from '../parts/page.js';
import { failed, toast } from '../parts/toast.js';
import { texts } from '../texts.js';

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
async function make(
  tab: Tab,
  { name = '', kind, url = '', issuer = '', clientId = '', clientSecret, certificate = '' }: Values,
) {
  if (tab === '') {
    const body = { ...account(), name, kind: kind as 'backEnd' };
    return (await done(api.POST('/api/v1/applications', { body }))).application.appToken;
  }
  if (tab === 'identity-providers') {
    const redirectUris = [`${location.origin}/console/`];
    const body = { ...account(), name, issuer, clientId, redirectUris, ...(clientSecret && { clientSecret }) };
    await done(api.POST('/api/v1/identity-providers', { body }));
  } else if (tab === 'bridges') {
    const body = { ...account(), name, kind: kind as 'webhook', url };
    return (await done(api.POST('/api/v1/bridges', { body }))).bridge.secret;
  } else await done(api.POST('/api/v1/access/certificate-authorities', { body: { ...account(), name, certificate } }));
  return undefined;
}

async function read(tab: Tab, page: number) {
  const query = { ...account(), page, pageSize };
  if (tab === '') return (await done(api.GET('/api/v1/applications', { params: { query } }))).applications;
  if (tab === 'identity-providers')
    return (await done(api.GET('/api/v1/identity-providers', { params: { query } }))).identityProviders;
  if (tab === 'bridges') return (await done(api.GET('/api/v1/bridges', { params: { query } }))).bridges;
  return (await done(api.GET('/api/v1/access/certificate-authorities', { params: { query } }))).certificateAuthorities;
}

export function Programs({ tab: asked }: { tab: string }) {
  const tab = (asked in words.tabs ? asked : '') as Tab;
  const [making, setMaking] = useState(false);
  const [deleting, setDeleting] = useState<Named>();
  const [letters, setLetters] = useState<Named>();
  const [secret, setSecret] = useState<string>();
  const [round, setRound] = useState(0);
  const save = async (values: Values) => {
    setSecret(await make(tab, values));
    toast(texts.saved);
    setMaking(false);
    setRound(round + 1);
  };
  const test = async ({ id }: Named) => {
    await done(api.POST('/api/v1/bridges/{id}/test', { params: { path: { id } } }));
    toast(words.tested);
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
      <Listing<Named & { created: string; kind?: string; state?: string }>
        label={words.tabs[tab]}
        on={[round]}
        load={(page) => read(tab, page)}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          { name: 'kind', label: words.kind, show: ({ kind, state }) => <Badge text={kind ?? state ?? '–'} /> },
          { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
          {
            name: 'do',
            label: texts.actions,
            show: (one) => (
              <span class="row">
                {tab === 'bridges' && (
                  <>
                    <Act label={words.test} act={() => test(one)} onError={failed} />
                    <button type="button" onClick={() => setLetters(one)}>
                      {words.deadLetters}
                    </button>
                  </>
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
      {making && (
        <Dialog title={words.new[tab]} onClose={() => setMaking(false)}>
          <Form save={save} verb={texts.create} onCancel={() => setMaking(false)}>
            <Field label={texts.name} name="name" required />
            {tab === '' && <Select label={words.kind} name="kind" options={words.applicationKinds} />}
            {tab === 'bridges' && (
              <>
                <Select
                  label={words.kind}
                  name="kind"
                  options={['webhook', 'nats', 'kafka', 'kinesis', 'mqtt'].map((one) => [one, one] as const)}
                />
                <Field label={words.address} name="url" required />
              </>
            )}
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
      {letters && (
        <Dialog title={words.deadLetters} onClose={() => setLetters(undefined)} wide>
          <Listing
            label={words.deadLetters}
            load={async (page) => {
              const params = { path: { id: letters.id }, query: { page, pageSize } };
              const { deadLetters } = await done(api.GET('/api/v1/bridges/{id}/dead-letters', { params }));
              return {
                ...deadLetters,
                results: deadLetters.results?.map((one, at) => ({ ...one, id: String(at) })) ?? [],
              };
            }}
            columns={[
              {
                name: 'letter',
                label: words.deadLetters,
                wrap: true,
                show: (one) => <code>{JSON.stringify(one)}</code>,
              },
            ]}
            empty={<p>{words.noDeadLetters}</p>}
          />
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
