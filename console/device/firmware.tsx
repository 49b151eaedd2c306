/** The firmware of a device, and the progress of its update. */
import { api, unwrap } from '../app/api.ts';
import { can } from '../app/session.ts';
import { deliveryKinds } from '../firmware/states.ts';
import { Ago } from '../parts/ago.tsx';
import { ActionButton, ErrorNote } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge, Loading, Time } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import type { DeviceRow } from './row.ts';

const words = texts.device;

/** Who says what a device runs, and since when. */
export function VersionSource({ of }: { of: Pick<DeviceRow, 'firmwareVersionSource' | 'firmwareVersionTime'> }) {
  const said = words.versionSources[of.firmwareVersionSource ?? ''];
  if (said === undefined) return null;
  return (
    <div class="small soft">
      {said} {of.firmwareVersionTime !== null && <Ago iso={of.firmwareVersionTime} />}
    </div>
  );
}

export function Firmware({ device }: { device: DeviceRow }) {
  const { id, firmwareVersion } = device;
  const { data, error, reload } = useLoad(
    () => unwrap(api.GET('/api/v1/devices/{id}/firmware', { params: { path: { id } } })),
    [id],
    5000,
  );
  const install = async () => {
    await unwrap(api.POST('/api/v1/devices/{id}/firmware/install', { params: { path: { id } } }));
    toast(words.installStarted);
    reload();
  };
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  const update = data.firmware;
  return (
    <div class="grid">
      <section class="panel">
        <h2>{words.installed}</h2>
        <p class="figure">{firmwareVersion ?? '–'}</p>
        <VersionSource of={device} />
        <p class="soft">{words.installedHint}</p>
      </section>
      <section class="panel">
        <h2>{words.update}</h2>
        {update ? (
          <>
            <dl>
              <dt>{texts.firmware.version}</dt>
              <dd>{update.firmwareVersion}</dd>
              <dt>{texts.devices.state}</dt>
              <dd>
                <Badge kind={deliveryKinds[update.state]} text={texts.firmware.states[update.state]} />
              </dd>
              {update.message && (
                <>
                  <dt>{texts.message}</dt>
                  <dd>{update.message}</dd>
                </>
              )}
              <dt>{words.updated}</dt>
              <dd>
                <Time iso={update.updated} />
              </dd>
              <dt>{words.deadline}</dt>
              <dd>
                <Time iso={update.deadline} />
              </dd>
            </dl>
            {update.consentNeeded && can('update', 'firmwareState') && (
              <ActionButton label={words.install} act={install} onError={failed} kind="primary" />
            )}
          </>
        ) : (
          <p class="soft">{words.noUpdate}</p>
        )}
      </section>
    </div>
  );
}
