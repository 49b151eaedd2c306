/** One's own login, and for admins retention, usage, the audit record and the health of the service. */
import { api, unwrap } from '../app/api.ts';
import { accountId, can, me } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { toast } from '../parts/dialogs/toast.tsx';
import { ErrorNote, Field, Form, type Values } from '../parts/forms/form.tsx';
import { NewPassword } from '../parts/forms/new-password.tsx';
import { EntityPart } from '../parts/lists/entity-page.tsx';
import { Badge, Facts, Loading, Page, Panel, Tabs, Time } from '../parts/page/page.tsx';
import { Security } from '../people/security.tsx';
import { texts } from '../texts.ts';
import { Audit } from './audit.tsx';
import { BrandingEditor } from './branding.tsx';
import { SecondFactor } from './second-factor.tsx';
import { tokens } from './tokens.tsx';
import { Usage } from './usage.tsx';

const words = texts.account;

export function Account({ tab }: { tab: string }) {
  const isAdmin = can('read', 'account');
  const shown: Record<string, boolean> = {
    '': true,
    tokens: can('read', 'device'),
    branding: can('update', 'account'),
    usage: isAdmin,
    audit: can('read', 'auditRecord'),
    health: isAdmin,
  };
  const tabs = Object.entries(words.tabs).filter(([name]) => shown[name]);
  return (
    <Page title={texts.places.account}>
      {tabs.length > 1 && <Tabs base="/account" current={tab} tabs={tabs} />}
      {tab === '' && <Own />}
      {tab === 'tokens' && shown.tokens && <EntityPart of={tokens} />}
      {tab === 'usage' && isAdmin && <Usage />}
      {tab === 'branding' && can('update', 'account') && <BrandingEditor />}
      {tab === 'audit' && can('read', 'auditRecord') && <Audit />}
      {tab === 'health' && isAdmin && <Health />}
    </Page>
  );
}

function Own() {
  const change = async ({ oldPassword = '', newPassword = '' }: Values, form: HTMLFormElement) => {
    const body = { userId: me.value?.id ?? '', oldPassword, newPassword };
    await unwrap(api.POST('/api/v1/profile/change-password', { body }));
    form.reset();
    toast(words.passwordChanged);
  };
  const userId = me.value?.id ?? '';
  return (
    <div class="masonry">
      <Panel title={me.value?.emailAddress ?? ''}>
        <Facts
          of={[
            [texts.role, words.kinds[me.value?.kind ?? ''] ?? me.value?.kind],
            [words.accountId, <code>{accountId.value}</code>],
            [words.sessionEnds, <Time iso={me.value?.sessionExpires} />],
          ]}
        />
      </Panel>
      <Panel title={words.changePassword}>
        <Form save={change} verb={words.changePassword}>
          <Field
            label={words.oldPassword}
            name="oldPassword"
            type="password"
            autoComplete="current-password"
            required
          />
          <NewPassword of={me.value?.emailAddress ?? ''} label={words.newPassword} name="newPassword" required />
        </Form>
      </Panel>
      <Panel title={texts.people.security}>
        <Security userId={userId} />
      </Panel>
      <SecondFactor userId={userId} />
      {can('read', 'account') && <Retention />}
    </div>
  );
}

function Retention() {
  const { data, error, reload } = useLoad(() => unwrap(api.GET('/api/v1/retention')), []);
  const save = async ({ retentionDays }: Values) => {
    const body = { retentionDays: retentionDays === undefined ? null : Number(retentionDays) };
    await unwrap(api.PUT('/api/v1/retention', { body }));
    toast(texts.saved);
    reload();
  };
  const days = data?.retention.retentionDays ?? '';
  return (
    <Panel title={words.retention}>
      <p>{words.retentionHint}</p>
      <ErrorNote error={error} />
      {data && (
        <Form key={String(days)} save={save} verb={texts.save} fixed={!can('update', 'account')}>
          <Field
            label={words.days}
            name="retentionDays"
            type="number"
            min="0"
            defaultValue={days}
            placeholder={words.default(data.retention.default)}
          />
        </Form>
      )}
    </Panel>
  );
}

/** The endpoint of load balancers; where it takes a token, only the operator can look. */
async function readHealth(): Promise<{ ready: boolean; problems: { part: string; reason: string }[] } | undefined> {
  const response = await fetch('/health/ready');
  return response.status === 401 || response.status === 403 ? undefined : response.json();
}

function Health() {
  const { data, error, loading } = useLoad(readHealth, [], 5000);
  if (error) return <ErrorNote error={error} />;
  if (!data) return loading ? <Loading /> : <p class="note">{words.healthClosed}</p>;
  return (
    <section class="panel">
      <h2 class="row">
        {words.tabs.health}{' '}
        <Badge kind={data.ready ? 'good' : 'bad'} text={data.ready ? words.ready : words.notReady} />
      </h2>
      {data.problems.length === 0 && <p>{words.noProblems}</p>}
      <Facts of={data.problems.map(({ part, reason }) => [part, reason])} />
      <p class="soft">{words.healthHint}</p>
    </section>
  );
}
