/** How the pages look that customers see, and whether they may sign up by themselves. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId } from '../app/session.ts';
import { type Branding, BrandMark, textOn } from '../claim/brand.tsx';
import { useLoad } from '../parts/data/load.ts';
import { toast } from '../parts/dialogs/toast.tsx';
import { forgetFile } from '../parts/forms/files.ts';
import { Button, Check, ErrorNote, Field, Form, type Values } from '../parts/forms/form.tsx';
import { Loading, Panel } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';

const words = texts.branding;
const usualColor = '#1a56db';

const readBranding = async () =>
  (await unwrap(api.GET('/api/v1/account/branding', { params: { query: { accountId: accountId.value } } }))).branding;

export function BrandingEditor() {
  const { data, error, reload } = useLoad(readBranding, []);
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  return (
    <div class="grid">
      <Editor key={JSON.stringify(data)} branding={data} onSaved={reload} />
      <Claiming />
    </div>
  );
}

function Editor({ branding, onSaved }: { branding: Branding; onSaved: () => void }) {
  const [shown, setShown] = useState(branding);
  const [problem, setProblem] = useState<unknown>();
  const save = async () => {
    const { name, color, logo } = shown;
    await unwrap(api.PUT('/api/v1/account/branding', { body: { name: name === '' ? null : name, color, logo } }));
    toast(texts.saved);
    onSaved();
  };
  const choose = (file: File | undefined) => {
    setProblem(undefined);
    if (!file) return;
    const reader = new FileReader();
    reader.addEventListener('load', () => setShown((before) => ({ ...before, logo: String(reader.result) })));
    reader.addEventListener('error', () => setProblem(reader.error));
    reader.readAsDataURL(file);
  };
  return (
    <Panel title={words.title}>
      <p>{words.hint}</p>
      <Form save={save} verb={texts.save}>
        <Field
          label={texts.name}
          name="name"
          maxLength={100}
          defaultValue={branding.name}
          onText={(name) => setShown({ ...shown, name })}
        />
        <Field
          label={words.color}
          name="color"
          type="color"
          defaultValue={branding.color ?? usualColor}
          onText={(color) => setShown({ ...shown, color })}
        />
        <Field
          label={words.logo}
          name="logo"
          type="file"
          accept="image/svg+xml,image/png"
          hint={words.logoHint}
          onClick={forgetFile}
          onChange={(event) => choose(event.currentTarget.files?.[0])}
        />
        <ErrorNote error={problem} />
        {shown.logo !== null && (
          <p>
            <Button label={words.noLogo} class="link" onClick={() => setShown({ ...shown, logo: null })} />
          </p>
        )}
      </Form>
      <h3>{texts.preview}</h3>
      <Preview branding={shown} />
      <p class="gap">
        <a href={`/claim?account=${accountId.value}`} target="_blank" rel="noreferrer">
          {words.open}
        </a>
      </p>
    </Panel>
  );
}

function Preview({ branding }: { branding: Branding }) {
  const color = branding.color ?? usualColor;
  return (
    <div class="preview" style={{ borderTopColor: color }}>
      <BrandMark branding={branding} />
      <span class="button" style={{ background: color, borderColor: color, color: textOn(color) }}>
        {texts.claim.next}
      </span>
    </div>
  );
}

function Claiming() {
  const { data, error, reload } = useLoad(() => unwrap(api.GET('/api/v1/account/claiming')), []);
  const save = async ({ signUp, customersMayRemove }: Values) => {
    const body = { signUp: signUp === 'true', customersMayRemove: customersMayRemove === 'true' };
    await unwrap(api.PUT('/api/v1/account/claiming', { body }));
    toast(texts.saved);
    reload();
  };
  return (
    <Panel title={words.claiming}>
      <p>{words.claimingHint}</p>
      <ErrorNote error={error} />
      {data && (
        <Form key={JSON.stringify(data.claiming)} save={save} verb={texts.save} of={words.claiming}>
          <Check label={words.signUp} name="signUp" value="true" checked={data.claiming.signUp} />
          <Check
            label={words.customersMayRemove}
            name="customersMayRemove"
            value="true"
            checked={data.claiming.customersMayRemove}
          />
        </Form>
      )}
    </Panel>
  );
}
