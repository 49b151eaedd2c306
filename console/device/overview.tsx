/** What one wants to know of a device first: what it says, what was refused, what it is and where. */
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { NameLink } from '../parts/data/names.tsx';
import { Ago } from '../parts/formats/ago.tsx';
import { ErrorNote } from '../parts/forms/form.tsx';
import { type Fact, Facts, Loading, Panel, Time } from '../parts/page/page.tsx';
import { State } from '../parts/page/state.tsx';
import { texts } from '../texts.ts';
import { fieldNames, readCustomFields, valueOfField } from './fields.tsx';
import { VersionSource } from './firmware.tsx';
import { Values } from './messages/values.tsx';
import { WorldMap } from './place/map.tsx';
import { type Position, positionOf } from './place/position.ts';
import { Lately } from './records/records.tsx';
import { Refused } from './records/refused.tsx';
import { type DeviceRow, readConnectivity } from './row.ts';

const words = texts.device;

export function Overview({ device }: { device: DeviceRow }) {
  const { id } = device;
  const { data, error, reload } = useLoad(() => readConnectivity(id), [id]);
  const position = positionOf(device);
  return (
    <div class="aside three">
      <div class="stack">
        {data && <Refused device={device} topics={data.topics} onChanged={reload} />}
        <section>
          <h2>{words.values}</h2>
          {data ? <Values id={id} topics={data.topics} /> : error ? <ErrorNote error={error} /> : <Loading />}
        </section>
        <Lately id={id} />
      </div>
      <div class="stack">
        <About device={device} />
        <Panel title={words.position}>
          {position ? (
            <>
              <WorldMap at={[position.at]} label={words.mapOf(device.serialNumber, placeText(position.at))} />
              <p class="small soft">
                {placeText(position.at)}
                {position.isGuess && ` · ${words.guessed}`}
              </p>
            </>
          ) : (
            <p class="soft">
              {words.noPosition} <Link href={`/devices/${id}/fields`}>{words.setPosition}</Link>
            </p>
          )}
        </Panel>
      </div>
    </div>
  );
}

function placeText({ latitude, longitude }: Position): string {
  const degrees = (value: number, [positive, negative]: readonly [string, string]) =>
    `${Math.abs(value).toFixed(3)}° ${value < 0 ? negative : positive}`;
  return `${degrees(latitude, words.northSouth)}, ${degrees(longitude, words.eastWest)}`;
}

/** Shown elsewhere on the page. */
const shownElsewhere: readonly string[] = ['firmwareVersion', 'latitude', 'longitude'];

function About({ device }: { device: DeviceRow }) {
  const { id, deviceTemplateId, provisioningState } = device;
  const { data: custom } = useLoad(() => readCustomFields(deviceTemplateId), [deviceTemplateId]);
  const names = fieldNames.filter((name) => !shownElsewhere.includes(name));
  const asText = (type: string, value: string | null) =>
    type === 'boolean' && value !== null ? (value === 'true' ? texts.yes : texts.no) : value;
  const fields = [
    ...names.map((name) => ({ label: words.fields[name], value: valueOfField(device, name) })),
    ...(custom ?? []).map(({ name, fieldType }) => ({
      label: name,
      value: asText(fieldType, valueOfField(device, name)),
    })),
  ];
  return (
    <section class="panel about">
      <div class="row heading apart">
        <h2>{texts.about}</h2>
        <Link class="small" href={`/devices/${id}/fields`}>
          {words.editFields}
        </Link>
      </div>
      <Facts
        of={[
          [texts.devices.connected, <Connection device={device} />],
          can('read', 'deviceTemplate') && [texts.product, <NameLink kind="deviceTemplate" id={deviceTemplateId} />],
          [texts.organization, <Owner of={device} />],
          [
            texts.state,
            <>
              {texts.devices.states[provisioningState] ?? provisioningState}
              <div class="small soft">{texts.devices.stateHints[provisioningState]}</div>
            </>,
          ],
          [texts.places.firmware, <FirmwareLine device={device} />],
          can('read', 'fleet') && [texts.places.fleets, <FleetsOf id={id} />],
          ...fields.filter(({ value }) => value !== null).map(({ label, value }): Fact => [label, value]),
          [words.id, <code>{id}</code>],
        ]}
      />
    </section>
  );
}

function Owner({ of: { organizationId, possessionSince } }: { of: DeviceRow }) {
  return (
    <>
      <NameLink kind="organization" id={organizationId} />
      {possessionSince !== null && (
        <div class="small soft">
          {words.ownerSince} <Time iso={possessionSince} />
        </div>
      )}
    </>
  );
}

function Connection({ device: { connected, lastConnected, externalIp, reverseDns } }: { device: DeviceRow }) {
  if (!lastConnected) return <span class="soft">{words.neverConnected}</span>;
  return (
    <>
      {connected ? words.onlineSince : words.lastCame} <Ago iso={lastConnected} />
      {externalIp && <div class="small soft">{words.from(reverseDns ?? externalIp)}</div>}
    </>
  );
}

/** Fleets that are named; of more, only the number is told. */
const maxFleets = 10;

function FleetsOf({ id }: { id: string }) {
  const { data } = useLoad(async () => {
    const params = { path: { id }, query: { pageSize: maxFleets } };
    const answer = await unwrap(api.GET('/api/v1/devices/{id}/fleets', { params }));
    return 'fleets' in answer ? answer.fleets : undefined;
  }, [id]);
  const { results = [], meta } = data ?? {};
  if (results.length === 0) return <span class="soft">–</span>;
  return (
    <>
      {results.map(({ id, name }) => (
        <div key={id}>
          <Link href={`/fleets/${id}`}>{name}</Link>
        </div>
      ))}
      {meta && meta.count > results.length && (
        <div class="small soft">{texts.home.more(meta.count - results.length)}</div>
      )}
    </>
  );
}

/** The version that runs, and the update that is under way. */
function FirmwareLine({ device }: { device: DeviceRow }) {
  const { id, firmwareVersion } = device;
  const { data } = useLoad(
    async () =>
      can('read', 'firmwareState')
        ? (await unwrap(api.GET('/api/v1/devices/{id}/firmware', { params: { path: { id } } }))).firmware
        : null,
    [id],
    15_000,
  );
  return (
    <>
      {firmwareVersion ?? <span class="soft">{words.unknown}</span>}
      <VersionSource of={device} />
      {data && data.firmwareVersion !== firmwareVersion && (
        <div class="small">
          <Link href={`/devices/${id}/firmware`}>{words.updateTo(data.firmwareVersion)}</Link> <State of={data.state} />
        </div>
      )}
    </>
  );
}
