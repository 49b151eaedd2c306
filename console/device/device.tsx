/** One device: what it is, what it says, what it is allowed, and what can be done with it. */

import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Confirm } from '../parts/dialog.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge, Page, Tabs, Waiting } from '../parts/page.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { Access } from './access.tsx';
import { Commands } from './commands.tsx';
import { Fields } from './fields.tsx';
import { Firmware } from './firmware.tsx';
import { Live } from './live.tsx';
import { Overview } from './overview.tsx';
import { History, Log, Refusals } from './records.tsx';
import { readDevice } from './row.ts';
import { Series } from './series.tsx';
import { Support } from './support.tsx';
import { Where } from './where.tsx';

const words = texts.device;

export function Device({ id, tab }: { id: string; tab: string }) {
  const [, navigate] = useLocation();
  const [deleting, setDeleting] = useState(false);
  const { data: device, error, reload } = useLoad(() => readDevice(id), [id], 10_000);
  if (!device) return <Waiting title={words.one} error={error} trash="" />;
  const remove = async () => {
    const { device: trashed } = await unwrap(
      api.DELETE('/api/v1/devices/{id}', { params: { path: { id }, header: { etag: device.version } } }),
    );
    navigate('/devices');
    toast(words.deleted(device.serialNumber), () =>
      unwrap(
        api.POST('/api/v1/trash/devices/{id}/recover', { params: { path: { id }, header: { etag: trashed.version } } }),
      ),
    );
  };
  const tabs = Object.entries(words.tabs).filter(
    ([name]) =>
      (name !== 'history' || can('read', 'auditRecord') || can('read', 'supportRequest')) &&
      (name !== 'commands' || can('read', 'command')),
  );
  return (
    <Page
      title={device.serialNumber}
      part={tab === '' ? undefined : tabs.find(([name]) => name === tab)?.[1]}
      actions={
        can('delete', 'device') && (
          <button type="button" class="danger" onClick={() => setDeleting(true)}>
            {texts.delete}
          </button>
        )
      }
    >
      <p class="row">
        <Badge
          kind={device.connected ? 'good' : undefined}
          text={device.connected ? texts.online : texts.offlineShort}
        />
        <Badge text={texts.devices.states[device.provisioningState] ?? device.provisioningState} />
        <Where device={device} />
      </p>
      <Tabs base={`/devices/${id}`} current={tab} tabs={tabs} />
      {tab === '' && <Overview device={device} />}
      {tab === 'live' && <Live device={device} />}
      {tab === 'series' && <Series device={device} />}
      {tab === 'commands' && <Commands id={id} />}
      {tab === 'log' && <Log id={id} />}
      {tab === 'refusals' && <Refusals id={id} />}
      {tab === 'fields' && <Fields device={device} onSaved={reload} />}
      {tab === 'access' && <Access device={device} onChanged={reload} />}
      {tab === 'firmware' && <Firmware device={device} />}
      {tab === 'history' && can('read', 'supportRequest') && <Support id={id} />}
      {tab === 'history' && can('read', 'auditRecord') && <History id={id} accountId={accountId.value} />}
      {deleting && (
        <Confirm
          title={words.deleteTitle(device.serialNumber)}
          says={words.deleteSays}
          verb={texts.delete}
          run={remove}
          onClose={() => setDeleting(false)}
        />
      )}
    </Page>
  );
}
