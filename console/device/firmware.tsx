/** How the firmware of a device stands. */
import { api, done } from '../app/api.js';
import { can } from '../app/session.js';
import { Code } from '../parts/code.js';
import { Act, ErrorNote } from '../parts/form.js';
import { useLoad } from '../parts/load.js';
import { failed, toast } from '../parts/toast.js';
import { texts } from '../texts.js';

const words = texts.device;

export function Firmware({ id }: { id: string }) {
  const { data, error, reload } = useLoad(
    () => done(api.GET('/api/v1/devices/{id}/firmware', { params: { path: { id } } })),
    [id],
    5000,
  );
  const install = async () => {
    await done(api.POST('/api/v1/devices/{id}/firmware/install', { params: { path: { id } } }));
    toast(words.installStarted);
    reload();
  };
  return (
    <section class="panel">
      <h2>{words.tabs.firmware}</h2>
      <ErrorNote error={error} />
      {data && <Code label={words.tabs.firmware} text={JSON.stringify(data, null, 2)} />}
      {can('update', 'firmwareState') && <Act label={words.install} act={install} onError={failed} />}
    </section>
  );
}
