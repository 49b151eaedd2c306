/** How a device gets in: its secret, certificates, the code with which it is claimed, other hardware, proof that it works. */
import { useMemo, useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { type Entity, make, readList } from '../app/entities.ts';
import { accountId, can, isCustomer } from '../app/session.ts';
import { Code } from '../parts/codes/code.tsx';
import { QrCode } from '../parts/codes/qr.tsx';
import { LinkWarning } from '../parts/dialogs/broker-warning.tsx';
import { failed } from '../parts/dialogs/toast.tsx';
import { ActionButton, Field, Form, Select, type Values } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { type EntityList, EntityPart } from '../parts/lists/entity-page.tsx';
import { creating, Once, useVerbs, type Verb, VerbButtons } from '../parts/lists/verbs.tsx';
import { Panel, Time } from '../parts/page/page.tsx';
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
  const { start, notes, dialog } = useVerbs(onChanged);
  if (!can('create', 'mqttCredential') || !can('publish', 'device')) return null;
  const making: Verb = {
    text: words.newSecret,
    ask: { title: words.newSecretOf(serialNumber), says: words.newSecretSays },
    run: async () => {
      const body = { accountId: accountId.value, entityId: id, entityType: 'device' as const };
      const { mqttCredential } = await unwrap(api.POST('/api/v1/access/mqtt-credentials', { body }));
      const { secret } = mqttCredential;
      return { said: '', note: <Once says={texts.firstDevice.secretOnce} label={texts.secret} text={secret} /> };
    },
  };
  const shown = (
    <>
      {notes}
      <p>{words.secretHint}</p>
      <VerbButtons verbs={[making]} start={start} />
    </>
  );
  return (
    <Panel title={texts.secret}>
      {isCustomer() ? (
        // A product of a customer works; who builds devices finds it.
        <details>
          <summary>{words.setUpAgain}</summary>
          {shown}
        </details>
      ) : (
        shown
      )}
      {dialog}
    </Panel>
  );
}

async function makeLabel(deviceId: string) {
  const { associationCode: code } = await unwrap(
    api.POST('/api/v1/association/create-association-code', { body: { deviceId } }),
  );
  const { provisioning } = await unwrap(api.GET('/api/v1/provisioning/addresses'));
  const url = new URL(provisioning.claimUrl);
  url.searchParams.set('code', code);
  url.searchParams.set('account', accountId.value);
  return { code, url: url.href };
}

function Association({ device: { id, serialNumber } }: { device: DeviceRow }) {
  const { start, notes, dialog } = useVerbs(() => {});
  const making: Verb = {
    text: words.makeCode,
    ask: { title: words.makeCodeOf(serialNumber), says: words.makeCodeSays },
    run: async () => {
      const { code, url } = await makeLabel(id);
      const label = (
        <figure class="stack">
          <LinkWarning url={url} />
          <QrCode text={url} label={words.qr} />
          <figcaption>
            <b>{serialNumber}</b> <code>{code}</code>
          </figcaption>
        </figure>
      );
      return { said: '', note: label };
    },
  };
  return (
    <Panel title={words.association}>
      <p>{words.associationHint}</p>
      {notes}
      <VerbButtons verbs={[making]} start={start} />
      {dialog}
    </Panel>
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
    <Panel title={words.verify}>
      <p>{words.verifyHint}</p>
      {said && (
        <p class="note" role="status">
          {said}
        </p>
      )}
      <ActionButton label={words.verify} act={verify} onError={failed} />
    </Panel>
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
    <Panel title={words.explain}>
      <Form light save={ask} verb={words.ask}>
        <Picker kind="anyone" label={words.principal} name="who" />
        <Select label={texts.action} name="action" options={actions.map((one) => [one, words.actions[one]] as const)} />
      </Form>
      {said && (
        <p class={said.allowed ? 'note good' : 'note bad'} role="status">
          {words.explained(said.allowed, said.rule)}
        </p>
      )}
    </Panel>
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
    <Panel title={words.replace}>
      <p>{words.replaceHint}</p>
      {secret && <Code label={texts.secret} text={secret} />}
      <Form save={replace} verb={words.replace} danger>
        <Field label={words.newSerial} name="serialNumber" required />
      </Form>
    </Panel>
  );
}

const certificatesOf = (device: string): EntityList<Entity<'mqttCertificate'>> => ({
  label: texts.enrollment.tabs.certificates,
  kind: 'mqttCertificate',
  empty: words.noCertificates,
  load: (page) => readList('mqttCertificate', page, { entityId: device }),
  columns: [
    { name: 'subject', label: words.subject, wrap: true, show: ({ subject }) => subject },
    { name: 'validTo', label: texts.validUntil, show: ({ validTo }) => <Time iso={validTo} /> },
  ],
  create: () =>
    can('create', 'mqttCertificate') &&
    can('publish', 'device') &&
    creating(words.addCertificate, {
      verb: texts.save,
      fields: () => [{ name: 'certificate', label: 'PEM', isLong: true, required: true }],
      save: async ({ certificate = '' }) => {
        await make('mqttCertificate', { entityId: device, entityType: 'device', certificate });
      },
    }),
});

function Certificates({ id }: { id: string }) {
  const certificates = useMemo(() => certificatesOf(id), [id]);
  return (
    <div class="panel">
      <EntityPart of={certificates} heading={texts.enrollment.tabs.certificates} />
    </div>
  );
}
