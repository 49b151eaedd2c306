/** The caller's own login, and for admins usage, retention and the audit record. */
import { useSearchParams } from 'wouter-preact';
import { api, done } from '../app/api.js';
import { accountId, can, me, renew } from '../app/session.js';
import { Act, ErrorNote, Field, Form, type Values } from '../parts/form.js';
import { Listing, pageSize } from '../parts/listing.js';
import { useLoad } from '../parts/load.js';
import { Badge, Page, Time } from '../parts/page.js';
import { Table } from '../parts/table.js';
import { failed, toast } from '../parts/toast.js';
import { texts } from '../texts.js';

const words = texts.account;

export function Account() {
  return (
    <Page title={texts.places.account}>
      <div class="stack">
        <div class="grid">
          <Own />
          {can('read', 'account') && <Retention />}
        </div>
        {can('read', 'account') && <Usage />}
        {can('read', 'auditRecord') && <Audit />}
      </div>
    </Page>
  );
}

function Own() {
  const change = async ({ oldPassword = '', newPassword = '' }: Values, form: HTMLFormElement) => {
    const body = { userId: me.value?.id ?? '', oldPassword, newPassword };
    await done(api.POST('/api/v1/profile/change-password', { body }));
    form.reset();
    toast(words.passwordChanged);
  };
  return (
    <section class="panel">
      <h2>{me.value?.emailAddress}</h2>
      <dl>
        <dt>{words.kind}</dt>
        <dd>{me.value?.kind}</dd>
        <dt>{words.accountId}</dt>
        <dd>
          <code>{accountId.value}</code>
        </dd>
        <dt>{words.sessionEnds}</dt>
        <dd>
          <Time iso={me.value?.sessionExpires} /> <Act label={texts.stay} act={renew} onError={failed} kind="plain" />
        </dd>
      </dl>
      <h3>{words.changePassword}</h3>
      <Form save={change} verb={words.changePassword}>
        <Field label={words.oldPassword} name="oldPassword" type="password" autoComplete="current-password" required />
        <Field label={words.newPassword} name="newPassword" type="password" autoComplete="new-password" required />
      </Form>
    </section>
  );
}

function Retention() {
  const { data, error, reload } = useLoad(() => done(api.GET('/api/v1/retention')), []);
  const save = async ({ retentionDays }: Values) => {
    await done(
      api.PUT('/api/v1/retention', { body: { retentionDays: retentionDays ? Number(retentionDays) : null } as never }),
    );
    toast(texts.saved);
    reload();
  };
  const days = (data as unknown as { retention?: { retentionDays?: number | null } } | undefined)?.retention
    ?.retentionDays;
  return (
    <section class="panel">
      <h2>{words.retention}</h2>
      <p>{words.retentionHint}</p>
      <ErrorNote error={error} />
      {data && (
        <Form key={String(days)} save={save} verb={texts.save}>
          <Field label={words.days} name="retentionDays" type="number" min="0" defaultValue={days ?? ''} />
        </Form>
      )}
    </section>
  );
}

function Usage() {
  const { data, error } = useLoad(() => done(api.GET('/api/v1/usage')), [], 30_000);
  const limits = data?.usage.limits.filter(({ used }) => used !== null).map((one) => ({ ...one, id: one.name }));
  return (
    <section>
      <h2>{words.usage}</h2>
      <Table
        label={words.usage}
        rows={limits}
        error={error}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          { name: 'used', label: words.used, show: ({ used, unit }) => `${used?.toLocaleString()} ${unit}` },
          {
            name: 'limit',
            label: words.limit,
            show: ({ limit }) => (limit === 0 ? words.unlimited : limit.toLocaleString()),
          },
          { name: 'variable', label: words.variable, show: ({ variable }) => <code>{variable}</code> },
        ]}
        empty={<p>{texts.nothing}</p>}
      />
    </section>
  );
}

function Audit() {
  const [search] = useSearchParams();
  return (
    <section>
      <h2>{words.audit}</h2>
      <Listing
        label={words.audit}
        on={[search.get('event')]}
        load={async (page) => {
          const query = { accountId: accountId.value, page, pageSize };
          return (await done(api.GET('/api/v1/audit', { params: { query } }))).auditRecords;
        }}
        columns={[
          { name: 'time', label: texts.time, show: ({ time }) => <Time iso={time} /> },
          { name: 'event', label: texts.device.event, show: ({ event }) => event },
          {
            name: 'outcome',
            label: texts.device.outcome,
            show: ({ outcome }) => <Badge kind={outcome === 'success' ? 'good' : 'bad'} text={outcome} />,
          },
          { name: 'actor', label: texts.device.actor, show: ({ actorId }) => <code>{actorId}</code> },
        ]}
        empty={<p>{texts.nothing}</p>}
      />
    </section>
  );
}
