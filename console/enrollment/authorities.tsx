/** CAs: those of the account whose certificates let devices in, and those with which the service issues certificates. */
import { api, unwrap } from '../app/api.ts';
import { change, type Entity, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Code } from '../parts/codes/code.tsx';
import { download } from '../parts/formats/download.ts';
import { ending } from '../parts/lists/deletions.ts';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { creating, type Verb } from '../parts/lists/verbs.tsx';
import { Badge, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { Ends } from './certificates.tsx';

const words = texts.enrollment.authorities;
type Authority = Entity<'certificateAuthority'>;
const dash = <span class="soft">–</span>;
const pem = { name: 'certificate', label: 'PEM', isLong: true, required: true } as const;

export const authorities: EntityList<Authority> = {
  label: texts.enrollment.tabs.authorities,
  kind: 'certificateAuthority',
  empty: words.none,
  load: (page) => readList('certificateAuthority', page),
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    {
      name: 'kind',
      label: texts.kind,
      show: ({ issuing }) => (issuing ? texts.enrollment.authorities.kinds.issuing : words.kinds.registered),
    },
    {
      name: 'state',
      label: texts.state,
      show: ({ state }) => <Badge kind={state === 'active' ? 'good' : 'warn'} text={words.states[state]} />,
    },
    {
      name: 'ends',
      label: texts.enrollment.ends,
      show: ({ validTo, state, issuing }) => (state === 'active' || !issuing ? <Ends validTo={validTo} /> : dash),
    },
    { name: 'list', label: words.list, wrap: true, show: (one) => <ListState of={one} /> },
  ],
  create: () => can('create', 'certificateAuthority') && newAuthority,
  verbs: (of) => {
    const isActive = of.state === 'active';
    const mayChange = can('update', 'certificateAuthority');
    return [
      mayChange && !isActive && !of.issuing && proving(of),
      mayChange && !of.issuing && editing(of),
      mayChange && !of.issuing && isActive && listing(of),
      mayChange && of.issuing && certifying(of),
      isActive && { text: words.saveCertificate, run: () => saveCertificate(of) },
      isActive && of.issuing && { text: words.saveList, run: () => saveList(of) },
      can('delete', 'certificateAuthority') && ending('certificateAuthority', of),
    ];
  },
};

/** A name as the beginning of a file's. */
const fileName = (name: string) => name.replace(/[^\w.-]+/g, '-').toLowerCase() || 'ca';

async function saveCertificate({ name, certificate }: Authority) {
  download(`${fileName(name)}.crt`, new Blob([certificate], { type: 'application/x-pem-file' }));
  return { said: '' };
}

async function saveList({ id, name }: Authority) {
  const params = { path: { authorityId: id } };
  const list = await unwrap(api.GET('/api/v1/crl/{authorityId}', { params, parseAs: 'blob' }));
  download(`${fileName(name)}.crl`, list as unknown as Blob);
  return { said: '' };
}

/** One of the account that is registered, or one with which the service issues certificates. */
const newAuthority = creating(texts.enrollment.new.authorities, {
  values: { kind: 'registered' },
  fields: ({ kind }) => [
    { name: 'name', label: texts.name, required: true },
    { name: 'kind', label: texts.kind, options: Object.entries(words.kinds) },
    <p class="soft small">{words.hints[kind as keyof typeof words.hints]}</p>,
    kind === 'registered' && pem,
  ],
  save: async ({ name = '', kind, certificate }) => {
    const own = kind === 'registered' ? { certificate } : { issuing: true, request: kind === 'request' || undefined };
    await make('certificateAuthority', { name, ...own });
  },
});

const maxName = 255;

export async function makeIssuer(name: string): Promise<string> {
  return (await make('certificateAuthority', { name: name.slice(0, maxName), issuing: true })).id;
}

function proving({ id, name, challenge }: Authority): Verb {
  const form: Verb['form'] = {
    title: words.proveOf(name),
    verb: words.prove,
    fields: () => [words.proveHint, <Code label={words.challenge} text={challenge ?? ''} />, pem],
    save: async ({ certificate = '' }) => {
      const sent = { params: { path: { id } }, body: { certificate } };
      await unwrap(api.POST('/api/v1/access/certificate-authorities/{id}/proof', sent));
    },
  };
  return { text: words.prove, form };
}

/** The request that the CA of the company signs, and what it has signed. */
function certifying({ id, name, version, certificateRequest }: Authority): Verb {
  const form: Verb['form'] = {
    title: words.uploadOf(name),
    verb: words.upload,
    fields: () => [
      certificateRequest ? words.uploadHint : words.newerHint,
      certificateRequest ? <Code label={words.request} text={certificateRequest} /> : false,
      pem,
    ],
    save: async ({ certificate = '' }) => {
      const sent = { params: { path: { id }, header: { etag: version } }, body: { certificate } };
      await unwrap(api.PUT('/api/v1/access/certificate-authorities/{id}/certificate', sent));
    },
  };
  return { text: words.upload, form };
}

const attributes = ['CN', 'serialNumber', 'OU', 'UID'] as const;

/** Of a registered CA: whom its certificates name, and where its list is. */
function editing(of: Authority): Verb {
  const form: Verb['form'] = {
    title: texts.verbOf(texts.edit, of.name),
    values: of,
    fields: () => [
      { name: 'name', label: texts.name, required: true },
      { name: 'identity', label: words.identity, options: Object.entries(words.identities) },
      { name: 'serialNumberAttribute', label: words.attribute, options: attributes.map((one) => [one, one] as const) },
      {
        ...{ name: 'crlUrl', label: words.listUrl, type: 'url', hint: words.listUrlHint },
        placeholder: 'https://pki.example.com/ca.crl',
      },
      { name: 'crlPolicy', label: words.policy, options: Object.entries(words.policies) },
    ],
    save: async ({ name = of.name, identity, serialNumberAttribute, crlUrl, crlPolicy }) => {
      await change('certificateAuthority', of, {
        ...{ name, identity: identity as 'id', serialNumberAttribute: serialNumberAttribute as 'CN' },
        ...{ crlUrl: crlUrl ?? null, crlPolicy: crlPolicy as 'warn' },
      });
    },
  };
  return { text: texts.edit, form };
}

/** A list is a file, DER or PEM. */
function listing({ id, name }: Authority): Verb {
  const form: Verb['form'] = {
    title: words.uploadListOf(name),
    verb: words.uploadList,
    fields: () => [
      words.uploadListHint,
      { name: 'file', label: texts.file, type: 'file', required: true, accept: '.crl,.pem,application/pkix-crl' },
    ],
    save: async (_, form) => {
      const file = new FormData(form).get('file') as File;
      const headers = { 'content-type': 'application/pkix-crl' };
      const sent = { body: file as never, bodySerializer: () => file, headers };
      await unwrap(api.PUT('/api/v1/access/certificate-authorities/{id}/crl', { params: { path: { id } }, ...sent }));
    },
  };
  return { text: words.uploadList, form };
}

/** The revocation list of a registered CA; those of others are made here. */
function ListState({ of: { issuing, state, crlTaken, crlCount, crlNextUpdate, crlError } }: { of: Authority }) {
  if (issuing) return state === 'active' ? words.ownList : dash;
  if (crlTaken === null && crlError === null) return dash;
  const isOver = crlNextUpdate !== null && Date.parse(crlNextUpdate) <= Date.now();
  return (
    <span class="row">
      {crlTaken !== null && (
        <span>
          {words.entries(crlCount ?? 0)} <Time iso={crlNextUpdate} />
        </span>
      )}
      {isOver && <Badge kind="bad" text={texts.enrollment.hasEnded} />}
      {crlError !== null && (
        <span>
          <Badge kind="warn" text={words.notFetched} /> {crlError}
        </span>
      )}
    </span>
  );
}
