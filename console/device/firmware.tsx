/** The firmware of a device: the progress of its update, its past, and an update of it alone. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { can } from '../app/session.ts';
import { readPublished } from '../firmware/packages.tsx';
import { deliveryColumns } from '../firmware/progress.tsx';
import { useLoad } from '../parts/data/load.ts';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { Ago } from '../parts/formats/ago.tsx';
import type { Chosen } from '../parts/forms/fields.tsx';
import { ActionButton, ErrorNote, Select } from '../parts/forms/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { useVerbs, type Verb, VerbButtons } from '../parts/lists/verbs.tsx';
import { Facts, Loading, Panel, Time } from '../parts/page/page.tsx';
import { State } from '../parts/page/state.tsx';
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

/** Rolls a package out to one device. */
function updating({ id, serialNumber, deviceTemplateId }: DeviceRow): Verb {
  const form: Verb['form'] = {
    title: words.updateOne(serialNumber),
    verb: words.update,
    fields: () => [{ name: 'packageId', choice: (chosen) => <Published product={deviceTemplateId} {...chosen} /> }],
    save: async ({ packageId = '' }) => {
      if (packageId === '') throw new Error(texts.firmware.noPublished);
      await unwrap(api.POST('/api/v1/devices/{id}/firmware', { params: { path: { id } }, body: { packageId } }));
      return { said: words.updateMade };
    },
  };
  return { text: words.updateThis, kind: 'primary', form };
}

function Published({ product, ...chosen }: Chosen & { product: string }) {
  const { data, error } = useLoad(() => readPublished(product), [product]);
  const { options = [] } = data ?? {};
  if (error) return <ErrorNote error={error} />;
  if (data && options.length === 0) return <p>{texts.firmware.noPublished}</p>;
  return <Select key={options.length} label={texts.firmware.package} options={options} busy={!data} {...chosen} />;
}

/** What was offered to a device, and what it said. */
function Past({ id, on }: { id: string; on: number }) {
  return (
    <section>
      <h2>{words.past}</h2>
      <Listing
        label={words.past}
        on={[on]}
        every={5000}
        newestFirst
        load={async (page) => {
          const params = { path: { id }, query: { page, pageSize } };
          const { history } = await unwrap(api.GET('/api/v1/devices/{id}/firmware/history', { params }));
          return { ...history, results: history.results?.map((one) => ({ ...one, id: one.rolloutId })) ?? [] };
        }}
        columns={[
          {
            name: 'version',
            label: texts.firmware.version,
            show: ({ firmwareVersion, rolloutId }) =>
              can('read', 'firmwareRollout') ? (
                <Link href={`/firmware/rollouts/${rolloutId}`}>{firmwareVersion}</Link>
              ) : (
                firmwareVersion
              ),
          },
          { name: 'former', label: words.ranBefore, show: ({ formerVersion }) => formerVersion ?? '–' },
          ...deliveryColumns,
        ]}
        empty={<p>{words.noPast}</p>}
      />
    </section>
  );
}

export function Firmware({ device }: { device: DeviceRow }) {
  const { id, firmwareVersion } = device;
  const [round, setRound] = useState(0);
  const { start, notes, dialog } = useVerbs(() => {
    reload();
    setRound((before) => before + 1);
  });
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
    <>
      {notes}
      <div class="grid">
        <Panel title={words.installed}>
          <p class="figure">{firmwareVersion ?? '–'}</p>
          <VersionSource of={device} />
          <p class="soft">{words.installedHint}</p>
        </Panel>
        <Panel title={words.update}>
          {update ? (
            <>
              <Facts
                of={[
                  [texts.firmware.version, update.firmwareVersion],
                  [texts.state, <State of={update.state} />],
                  update.message !== null && [texts.message, update.message],
                  [words.updated, <Time iso={update.updated} />],
                  [words.deadline, <Time iso={update.deadline} />],
                ]}
              />
              {update.consentNeeded && can('update', 'firmwareState') && (
                <ActionButton label={words.install} act={install} onError={failed} kind="primary" />
              )}
            </>
          ) : (
            <p class="soft">{words.noUpdate}</p>
          )}
          {can('create', 'firmwareRollout') && (
            <p class="gap">
              <VerbButtons verbs={[updating(device)]} start={start} />
            </p>
          )}
        </Panel>
      </div>
      <Past id={id} on={round} />
      {dialog}
    </>
  );
}
