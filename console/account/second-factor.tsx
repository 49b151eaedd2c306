/** Sets up an authenticator app: a QR code, a code to confirm it, and recovery codes that are shown once. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { Code } from '../parts/codes/code.tsx';
import { QrCode } from '../parts/codes/qr.tsx';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { ActionButton, Field, Form, type Values } from '../parts/forms/form.tsx';
import { Panel } from '../parts/page/shown.tsx';
import { texts } from '../texts.ts';

const words = texts.security;

export function SecondFactor({ userId }: { userId: string }) {
  const params = { path: { userId } };
  const [begun, setBegun] = useState<{ secret: string; otpauthUrl: string }>();
  const [codes, setCodes] = useState<string[]>();
  const begin = async () => setBegun(await unwrap(api.POST('/api/v1/users/{userId}/mfa/totp', { params })));
  const confirm = async ({ code = '' }: Values) => {
    const { recoveryCodes } = await unwrap(
      api.POST('/api/v1/users/{userId}/mfa/totp/confirm', { params, body: { code } }),
    );
    setBegun(undefined);
    setCodes(recoveryCodes);
    toast(words.confirmed);
  };
  const remove = async ({ code = '' }: Values, form: HTMLFormElement) => {
    await unwrap(api.DELETE('/api/v1/users/{userId}/mfa/totp', { params, body: { code } }));
    form.reset();
    toast(words.removed);
  };
  return (
    <Panel title={words.app}>
      {codes && (
        <>
          <p class="note warn">{words.recoveryOnce}</p>
          <Code label={words.recoveryCodes} text={codes.join('\n')} />
        </>
      )}
      {begun ? (
        <>
          <p>{words.scan}</p>
          <QrCode text={begun.otpauthUrl} label={words.qr} />
          <Code label={words.key} text={begun.secret} />
          <Form save={confirm} verb={words.confirm}>
            <Field label={texts.signIn.code} name="code" autoComplete="one-time-code" required />
          </Form>
        </>
      ) : (
        <>
          <p>{words.appHint}</p>
          <ActionButton label={words.setUp} act={begin} onError={failed} />
          <details class="gap">
            <summary>{words.removeOwn}</summary>
            <Form save={remove} verb={texts.remove} danger>
              <Field
                label={texts.signIn.code}
                name="code"
                autoComplete="one-time-code"
                required
                hint={words.removeHint}
              />
            </Form>
          </details>
        </>
      )}
    </Panel>
  );
}
