/** How a device gets in: its secret, certificates, the code with which it is claimed, other hardware, proof that it works. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { LinkWarning } from '../parts/broker-warning.tsx';
import { Code } from '../parts/code.tsx';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { ActionButton, Field, Form, Select, TextArea, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Time } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { QrCode } from '../parts/qr.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import type { DeviceRow } from './row.ts';

const words = texts.device;

export function Access({ device, onChanged }: { device: DeviceRow; onChanged: () => void }) {
  return (
    <div class="masonry">
      <Secret device={device} onChanged={onChanged} />
      {can('create', 'associationCode') && <Association device={device} />}
      {can('create', 'verification') && <Verify id={device.id} />}
      {can('read', 'permission') && <Explain id={device.id} />}
      {can('create', 'replacement') && <Replace device={device} onChanged={onChanged} />}
      {can('read', 'mqttCertificate') && <Certificates id={device.id} />}
    </div>
  );
}

function Secret({ device: { id, serialNumber }, onChanged }: { device: DeviceRow; onChanged: () => void }) {
  const [asking, setAsking] = useState(false);
  const [secret, setSecret] = useState<string>();
  const make = async () => {
    const body = { accountId: accountId.value, entityId: id, entityType: 'device' as const };
    const { mqttCredential } = await unwrap(api.POST('/api/v1/access/mqtt-credentials', { body }));
    setSecret(mqttCredential.secret);
    onChanged();
  };
  if (!can('create', 'mqttCredential') || !can('publish', 'device')) return null;
  return (
    <section class="panel">
      <h2>{words.secret}</h2>
      {secret ? (
        <>
          <p class="note warn">{texts.firstDevice.secretOnce}</p>
          <Code label={words.secret} text={secret} />
        </>
      ) : (
        <p>{words.secretHint}</p>
      )}
      <button type="button" onClick={() => setAsking(true)}>
        {words.newSecret}
      </button>
      {asking && (
        <Confirm
          title={words.newSecretOf(serialNumber)}
          says={words.newSecretSays}
          verb={words.newSecret}
          run={make}
          onClose={() => setAsking(false)}
        />
      )}
    </section>
  );
}

function Association({ device: { id, serialNumber } }: { device: DeviceRow }) {
  const [label, setLabel] = useState<{ code: string; url: string }>();
  const [asking, setAsking] = useState(false);
  const make = async () => {
    const { associationCode } = await unwrap(
      api.POST('/api/v1/association/create-association-code', { body: { deviceId: id } }),
    );
    const { provisioning } = await unwrap(api.GET('/api/v1/provisioning/addresses'));
    const url = new URL(provisioning.claimUrl);
    url.searchParams.set('code', associationCode);
    url.searchParams.set('account', accountId.value);
    setLabel({ code: associationCode, url: url.href });
  };
  return (
    <section class="panel">
      <h2>{words.association}</h2>
      <p>{words.associationHint}</p>
      {label && (
        <figure class="stack">
          <LinkWarning url={label.url} />
          <QrCode text={label.url} label={words.qr} />
          <figcaption>
            <b>{serialNumber}</b> <code>{label.code}</code>
          </figcaption>
        </figure>
      )}
      <button type="button" onClick={() => setAsking(true)}>
        {words.makeCode}
      </button>
      {asking && (
        <Confirm
          title={words.makeCodeOf(serialNumber)}
          says={words.makeCodeSays}
          verb={words.makeCode}
          run={make}
          onClose={() => setAsking(false)}
        />
      )}
    </section>
  );
}

function Verify({ id }: { id: string }) {
  const [said, setSaid] = useState('');
  const verify = async () => {
    const { verification } = await unwrap(
      api.POST('/api/v1/provisioning/verify', { body: { deviceId: id, timeoutSeconds: 10 } }),
    );
    setSaid(verification.passed ? words.verified : words.notVerified(verification.connected, verification.published));
  };
  return (
    <section class="panel">
      <h2>{words.verify}</h2>
      <p>{words.verifyHint}</p>
      {said && (
        <p class="note" role="status">
          {said}
        </p>
      )}
      <ActionButton label={words.verify} act={verify} onError={failed} />
    </section>
  );
}

const actions = ['read', 'update', 'delete'] as const;

function Explain({ id }: { id: string }) {
  const [said, setSaid] = useState<{ allowed: boolean; rule: string }>();
  const ask = async (values: Values) => {
    const [type, principalId] = values.who?.split(':') ?? [];
    if (principalId === undefined) throw new Error(words.chooseWho);
    const principal = { type: type as 'endUser', id: principalId };
    const entity = { type: 'device' as const, id };
    setSaid(
      await unwrap(
        api.POST('/api/v1/permissions/explain', { body: { principal, action: values.action as 'read', entity } }),
      ),
    );
  };
  return (
    <section class="panel">
      <h2>{words.explain}</h2>
      <Form light save={ask} verb={words.ask}>
        <Picker kind="anyone" label={words.principal} name="who" />
        <Select label={words.action} name="action" options={actions.map((one) => [one, words.actions[one]] as const)} />
      </Form>
      {said && (
        <p class={said.allowed ? 'note good' : 'note bad'} role="status">
          {words.explained(said.allowed, said.rule)}
        </p>
      )}
    </section>
  );
}

function Replace({ device, onChanged }: { device: DeviceRow; onChanged: () => void }) {
  const [secret, setSecret] = useState<string>();
  const replace = async ({ serialNumber = '' }: Values, form: HTMLFormElement) => {
    const params = { path: { id: device.id }, header: { etag: device.version } };
    const answer = await unwrap(api.POST('/api/v1/devices/{id}/replace', { params, body: { serialNumber } }));
    setSecret(answer.mqttCredential.secret);
    form.reset();
    onChanged();
  };
  return (
    <section class="panel">
      <h2>{words.replace}</h2>
      <p>{words.replaceHint}</p>
      {secret && <Code label={words.secret} text={secret} />}
      <Form save={replace} verb={words.replace} danger>
        <Field label={words.newSerial} name="serialNumber" required />
      </Form>
    </section>
  );
}

function Certificates({ id }: { id: string }) {
  const [adding, setAdding] = useState(false);
  const [round, setRound] = useState(0);
  const add = async ({ certificate = '' }: Values) => {
    const body = { accountId: accountId.value, entityId: id, entityType: 'device' as const, certificate };
    await unwrap(api.POST('/api/v1/access/mqtt-certificates', { body }));
    toast(texts.saved);
    setAdding(false);
    setRound(round + 1);
  };
  return (
    <section class="panel">
      <h2>{words.certificates}</h2>
      <Listing
        label={words.certificates}
        on={[round]}
        load={async (page) =>
          (
            await unwrap(
              api.GET('/api/v1/access/mqtt-certificates', {
                params: { query: { accountId: accountId.value, entityId: id, page, pageSize } },
              }),
            )
          ).mqttCertificates
        }
        columns={[
          { name: 'subject', label: words.subject, wrap: true, show: ({ subject }) => subject },
          { name: 'validTo', label: words.validTo, show: ({ validTo }) => <Time iso={validTo} /> },
        ]}
        empty={<p>{words.noCertificates}</p>}
      />
      <p />
      {can('create', 'mqttCertificate') && can('publish', 'device') && (
        <button type="button" onClick={() => setAdding(true)}>
          {words.addCertificate}
        </button>
      )}
      {adding && (
        <Dialog title={words.addCertificate} onClose={() => setAdding(false)}>
          <Form save={add} verb={texts.save} onCancel={() => setAdding(false)}>
            <TextArea label="PEM" name="certificate" required />
          </Form>
        </Dialog>
      )}
    </section>
  );
}
