/** Everything deleted, until when it can be recovered, and the way back. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { ActionButton, Select } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { useParam } from '../parts/lists/param.ts';
import { Page, Tabs, Time, trashed } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { withKnownEmails } from '../people/emails.ts';
import { texts } from '../texts.ts';

const words = texts.trash;
type Tab = keyof typeof words.tabs;
type FieldsOf = keyof typeof words.kinds;
/** Milliseconds: thirty days. */
const kept = 30 * 86_400_000;

interface Trashed {
  id: string;
  version: string;
  deleted?: string;
  name?: string | null;
  serialNumber?: string;
  email?: string | undefined;
}

const nameOf = ({ serialNumber, name, email }: Trashed) => serialNumber ?? name ?? email;

async function read(tab: Tab, of: FieldsOf, page: number): Promise<{ results?: Trashed[]; meta?: { count: number } }> {
  const params = { query: { accountId: accountId.value, page, pageSize } };
  if (tab === 'fields') return (await fieldsOf(of, params)) ?? {};
  if (tab === '') return (await unwrap(api.GET('/api/v1/trash/devices', { params }))).devices;
  if (tab === 'organizations') return (await unwrap(api.GET('/api/v1/trash/organizations', { params }))).organizations;
  if (tab === 'people') {
    const { endUsers } = await unwrap(api.GET('/api/v1/trash/end-users', { params }));
    return can('read', 'profile') ? withKnownEmails(endUsers) : endUsers;
  }
  if (tab === 'products') return (await unwrap(api.GET('/api/v1/trash/devices/templates', { params }))).deviceTemplates;
  if (tab === 'channels') return (await unwrap(api.GET('/api/v1/trash/channels/templates', { params }))).channelTemplates;
  if (tab === 'enrollment-groups')
    return (await unwrap(api.GET('/api/v1/trash/enrollment-groups', { params }))).enrollmentGroups;
  if (tab === 'roles') return (await unwrap(api.GET('/api/v1/trash/roles', { params }))).roles;
  return (await unwrap(api.GET('/api/v1/trash/firmware/packages', { params }))).firmwarePackages;
}

/** Custom fields of each kind have a wrapper of their own. */
async function fieldsOf(of: FieldsOf, params: { query: { accountId: string; page: number; pageSize: number } }) {
  const [list] = Object.values(await unwrap(api.GET(`/api/v1/trash/${of}/custom-fields`, { params })));
  return list;
}

async function recover(tab: Tab, of: FieldsOf, { id, version }: Trashed): Promise<void> {
  const params = { path: { id }, header: { etag: version } };
  if (tab === 'fields') await unwrap(api.POST(`/api/v1/trash/${of}/custom-fields/{id}/recover`, { params }));
  else if (tab === '') await unwrap(api.POST('/api/v1/trash/devices/{id}/recover', { params }));
  else if (tab === 'organizations') await unwrap(api.POST('/api/v1/trash/organizations/{id}/recover', { params }));
  else if (tab === 'people') await unwrap(api.POST('/api/v1/trash/end-users/{id}/recover', { params }));
  else if (tab === 'products') await unwrap(api.POST('/api/v1/trash/devices/templates/{id}/recover', { params }));
  else if (tab === 'channels') await unwrap(api.POST('/api/v1/trash/channels/templates/{id}/recover', { params }));
  else if (tab === 'enrollment-groups')
    await unwrap(api.POST('/api/v1/trash/enrollment-groups/{id}/recover', { params }));
  else if (tab === 'roles') await unwrap(api.POST('/api/v1/trash/roles/{id}/recover', { params }));
  else await unwrap(api.POST('/api/v1/trash/firmware/packages/{id}/recover', { params }));
}

export function Trash({ tab: asked }: { tab: string }) {
  const tabs = Object.entries(words.tabs).filter(([name]) => can('delete', trashed[name as Tab]));
  const tab = (tabs.find(([name]) => name === asked) ?? tabs[0] ?? [''])[0] as Tab;
  const [kind, setKind] = useParam('of');
  const of = (kind in words.kinds ? kind : 'devices') as FieldsOf;
  const [round, setRound] = useState(0);
  const bring = async (one: Trashed) => {
    await recover(tab, of, one);
    toast(words.recovered(nameOf(one) ?? one.id));
    setRound((before) => before + 1);
  };
  return (
    <Page title={texts.places.trash}>
      <Tabs base="/trash" current={tab} tabs={tabs} />
      {tab === 'fields' && (
        <div class="toolbar">
          <Select label={words.fieldsOf} value={of} options={Object.entries(words.kinds)} onText={setKind} />
        </div>
      )}
      <Listing
        label={words.tabs[tab]}
        on={[round, of]}
        load={(page) => read(tab, of, page)}
        columns={[
          { name: 'name', label: texts.name, show: (one) => nameOf(one) ?? <code>{one.id}</code> },
          { name: 'deleted', label: words.deleted, show: ({ deleted }) => <Time iso={deleted} /> },
          {
            name: 'until',
            label: words.until,
            show: ({ deleted }) => deleted && <Time iso={new Date(Date.parse(deleted) + kept).toISOString()} />,
          },
          {
            name: 'do',
            label: texts.actions,
            show: (one) => (
              <ActionButton label={words.recover} of={nameOf(one) ?? one.id} act={() => bring(one)} onError={failed} />
            ),
          },
        ]}
        empty={<p>{words.none}</p>}
      />
    </Page>
  );
}
