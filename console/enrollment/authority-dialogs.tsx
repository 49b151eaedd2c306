/** What is asked of somebody about one CA. */
import { api, unwrap } from '../app/api.ts';
import { Code } from '../parts/code.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Field, Form, Select, TextArea, type Values } from '../parts/form.tsx';
import { texts } from '../texts.ts';
import type { Authority } from './read.ts';

const words = texts.enrollment.authorities;

interface Asked {
  of: Authority;
  onDone: () => void;
  onClose: () => void;
}

export function Proof({ of: { id, name, challenge }, onDone, onClose }: Asked) {
  const prove = async ({ certificate = '' }: Values) => {
    const params = { path: { id } };
    await unwrap(api.POST('/api/v1/access/certificate-authorities/{id}/proof', { params, body: { certificate } }));
    onDone();
  };
  return (
    <Dialog title={words.proveOf(name)} onClose={onClose}>
      <Form save={prove} verb={words.prove} onCancel={onClose}>
        <p>{words.proveHint}</p>
        <Code label={words.challenge} text={challenge ?? ''} />
        <TextArea label="PEM" name="certificate" required />
      </Form>
    </Dialog>
  );
}

/** The request that the CA of the company signs, and what it has signed. */
export function Upload({ of: { id, name, version, certificateRequest }, onDone, onClose }: Asked) {
  const save = async ({ certificate = '' }: Values) => {
    const params = { path: { id }, header: { etag: version } };
    await unwrap(api.PUT('/api/v1/access/certificate-authorities/{id}/certificate', { params, body: { certificate } }));
    onDone();
  };
  return (
    <Dialog title={words.uploadOf(name)} onClose={onClose}>
      <Form save={save} verb={words.upload} onCancel={onClose}>
        <p>{certificateRequest ? words.uploadHint : words.newerHint}</p>
        {certificateRequest && <Code label={words.request} text={certificateRequest} />}
        <TextArea label="PEM" name="certificate" required />
      </Form>
    </Dialog>
  );
}

const attributes = ['CN', 'serialNumber', 'OU', 'UID'] as const;

/** Of a registered CA: whom its certificates name, and where its list is. */
export function Edit({ of, onDone, onClose }: Asked) {
  const save = async ({ name = of.name, identity, serialNumberAttribute, crlUrl, crlPolicy }: Values) => {
    const params = { path: { id: of.id }, header: { etag: of.version } };
    const body = {
      name,
      identity: identity as 'id',
      serialNumberAttribute: serialNumberAttribute as 'CN',
      crlUrl: crlUrl ?? null,
      crlPolicy: crlPolicy as 'warn',
    };
    await unwrap(api.PUT('/api/v1/access/certificate-authorities/{id}', { params, body }));
    onDone();
  };
  return (
    <Dialog title={texts.enrollment.editOf(of.name)} onClose={onClose}>
      <Form save={save} verb={texts.save} onCancel={onClose}>
        <Field label={texts.name} name="name" required defaultValue={of.name} />
        <Select label={words.identity} name="identity" value={of.identity} options={Object.entries(words.identities)} />
        <Select
          label={words.attribute}
          name="serialNumberAttribute"
          value={of.serialNumberAttribute}
          options={attributes.map((one) => [one, one] as const)}
        />
        <Field
          label={words.listUrl}
          name="crlUrl"
          type="url"
          hint={words.listUrlHint}
          placeholder="https://pki.example.com/ca.crl"
          defaultValue={of.crlUrl ?? ''}
        />
        <Select label={words.policy} name="crlPolicy" value={of.crlPolicy} options={Object.entries(words.policies)} />
      </Form>
    </Dialog>
  );
}

/** A list is a file, DER or PEM. */
export function UploadList({ of: { id, name }, onDone, onClose }: Asked) {
  const save = async (_: Values, form: HTMLFormElement) => {
    const file = new FormData(form).get('file') as File;
    const sent = {
      body: file as never,
      bodySerializer: () => file,
      headers: { 'content-type': 'application/pkix-crl' },
    };
    await unwrap(api.PUT('/api/v1/access/certificate-authorities/{id}/crl', { params: { path: { id } }, ...sent }));
    onDone();
  };
  return (
    <Dialog title={words.uploadListOf(name)} onClose={onClose}>
      <Form save={save} verb={words.uploadList} onCancel={onClose}>
        <p>{words.uploadListHint}</p>
        <Field label={words.file} name="file" type="file" required accept=".crl,.pem,application/pkix-crl" />
      </Form>
    </Dialog>
  );
}
