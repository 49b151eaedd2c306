/** A new CA: one of the account that is registered, or one with which the service issues certificates. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId } from '../app/session.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Field, Form, Select, TextArea, type Values } from '../parts/form.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';

const words = texts.enrollment.authorities;
type Kind = keyof typeof words.kinds;

const maxName = 255;

export async function makeIssuer(name: string): Promise<string> {
  const body = { accountId: accountId.value, name: name.slice(0, maxName), issuing: true };
  return (await unwrap(api.POST('/api/v1/access/certificate-authorities', { body }))).certificateAuthority.id;
}

export function NewAuthority({ onDone, onClose }: { onDone: () => void; onClose: () => void }) {
  const [kind, setKind] = useState<Kind>('registered');
  const save = async ({ name = '', certificate = '' }: Values) => {
    const account = { accountId: accountId.value, name };
    const own = kind === 'request' ? { issuing: true, request: true } : { issuing: true };
    const body = kind === 'registered' ? { ...account, certificate } : { ...account, ...own };
    await unwrap(api.POST('/api/v1/access/certificate-authorities', { body }));
    toast(texts.saved);
    onDone();
  };
  return (
    <Dialog title={texts.enrollment.new.authorities} onClose={onClose}>
      <Form save={save} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required />
        <Select
          label={texts.programs.kind}
          value={kind}
          options={Object.entries(words.kinds)}
          onText={(text) => setKind(text as Kind)}
        />
        <p class="soft small">{words.hints[kind]}</p>
        {kind === 'registered' && <TextArea label="PEM" name="certificate" required />}
      </Form>
    </Dialog>
  );
}
