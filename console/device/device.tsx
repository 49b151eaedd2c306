/** One device: what it is, what it says, what it is allowed, and what can be done with it. */

import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { api, done } from '../app/api.js';
import { accountId, can } from '../app/session.js';
import { Confirm } from '../parts/dialog.js';
import { useLoad } from '../parts/load.js';
import { Badge, Page, Tabs, Time, Waiting } from '../parts/page.js';
import { toast } from '../parts/toast.js';
import { texts } from '../texts.js';
import { Access } from './access.js';
import { Commands } from './commands.js';
import { Fields } from './fields.js';
import { Firmware } from './firmware.js';
import { Live } from './live.js';
import { History, Log, Refusals } from './records.js';
import { readDevice } from './row.js';
import { Series } from './series.js';
import { Where } from './where.js';

const words = texts.device;

export function Device({ id, tab }: { id: string; tab: string }) {
  const [, navigate] = useLocation();
  const [deleting, setDeleting] = useState(false);
  const { data: device, error, reload } = useLoad(() => readDevice(id), [id], 10_000);
  if (!device) return <Waiting title={words.one} error={error} />;
  const remove = async () => {
    const { device: trashed } = await done(
      api.DELETE('/api/v1/devices/{id}', { params: { path: { id }, header: { etag: device.version } } }),
    );
    navigate('/devices');
    toast(words.deleted(device.serialNumber), () =>
      done(
        api.POST('/api/v1/trash/devices/{id}/recover', { params: { path: { id }, header: { etag: trashed.version } } }),
      ),
    );
  };
  const tabs = Object.entries(words.tabs).filter(
    ([name]) => (name !== 'history' || can('read', 'auditRecord')) && (name !== 'commands' || can('read', 'command')),
  );
  return (
    <Page
      title={device.serialNumber}
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
        <span class="soft small">
          {texts.devices.lastConnected}: <Time iso={device.lastConnected} />
        </span>
        <code class="soft">{id}</code>
      </p>
      <Tabs base={`/devices/${id}`} current={tab} tabs={tabs} />
      {tab === '' && <Live device={device} />}
      {tab === 'series' && <Series device={device} />}
      {tab === 'commands' && <Commands id={id} />}
      {tab === 'log' && <Log id={id} />}
      {tab === 'refusals' && <Refusals id={id} />}
      {tab === 'fields' && <Fields device={device} onSaved={reload} />}
      {tab === 'access' && <Access device={device} onChanged={reload} />}
      {tab === 'firmware' && <Firmware device={device} />}
      {tab === 'history' && <History id={id} accountId={accountId.value} />}
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
