/** One fleet: what it says, the devices that match now and where they are, and what uses it. Its size is stored nowhere. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { type Entity, readList, readOne } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { WorldMap } from '../device/place/map.tsx';
import { positionOf } from '../device/place/position.ts';
import { columns } from '../devices/columns.tsx';
import { FilterSays, written } from '../devices/filter/bar.tsx';
import { devicesWith, joined, partsOf, termText } from '../devices/filter/text.ts';
import { readColumns, readRows } from '../devices/query.ts';
import { useLoad } from '../parts/data/load.ts';
import { NameOf } from '../parts/data/names.tsx';
import { Ago } from '../parts/formats/ago.tsx';
import { ErrorNote } from '../parts/forms/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { useVerbs, VerbButtons } from '../parts/lists/verbs.tsx';
import { Facts, Loading, Page, Panel, Waiting } from '../parts/page/page.tsx';
import { State } from '../parts/page/state.tsx';
import { texts } from '../texts.ts';
import { Owner, verbsOf } from './verbs.tsx';

const words = texts.fleets;
type Fleet = Entity<'fleet'>;
const sort = { by: 'serialNumber', order: 'asc' } as const;
/** Devices whose positions are read, and rollouts that are looked through. */
const maxRead = 1000;
/** Milliseconds between two looks at its devices. */
const every = 15_000;
const shownColumns = columns.filter(({ name }) =>
  ['serialNumber', 'connected', 'product', 'organization', 'firmwareVersion', 'lastConnected'].includes(name),
);

export function Fleet({ id }: { id: string }) {
  const { data: fleet, error, reload } = useLoad(() => readOne('fleet', id), [id]);
  const { start, notes, dialog } = useVerbs(reload);
  const [count, setCount] = useState<number>();
  if (!fleet) return <Waiting title={words.one} error={error} trash="fleets" />;
  const filter = { fleetId: id };
  return (
    <Page
      title={fleet.name}
      actions={
        <>
          <Link class="button" href={devicesWith(textOf(fleet))}>
            {words.inDevices}
          </Link>
          <VerbButtons verbs={verbsOf(fleet, '/fleets')} start={start} />
        </>
      }
    >
      {notes}
      {fleet.problem !== null && <p class="note warn">{fleet.problem}</p>}
      <div class="stack">
        <div class="grid">
          <div class="stack">
            <Panel title={texts.about}>
              <Facts
                of={[
                  [words.holds, <b>{count === undefined ? '…' : texts.counts.devices(count)}</b>],
                  fleet.description !== null && [texts.description, fleet.description],
                  [
                    words.filter,
                    <>
                      <FilterSays text={fleet.filter} />
                      <code class="small">{written(fleet.filter)}</code>
                    </>,
                  ],
                  [words.of, <Owner of={fleet} />],
                ]}
              />
            </Panel>
            {can('read', 'firmwareRollout') && <Uses id={id} />}
          </div>
          <Panel title={words.map}>
            <Positions id={id} version={fleet.version} />
          </Panel>
        </div>
        <section>
          <h2>{texts.places.devices}</h2>
          <Listing
            label={texts.places.devices}
            on={[id, fleet.version]}
            every={every}
            load={async (page, signal) => {
              const slice = await readRows({ filter, sort, page, pageSize }, [], [], signal);
              if (!signal.aborted) setCount(slice.meta?.count);
              return slice;
            }}
            columns={shownColumns}
            href={({ id }) => `/devices/${id}`}
            nameOf={({ serialNumber }) => serialNumber}
            empty={<p>{words.empty}</p>}
          />
        </section>
      </div>
      {dialog}
    </Page>
  );
}

/** The filter that means the same: one of an organization holds what is there, or below. */
function textOf({ filter, organizationId }: Fleet): string {
  if (organizationId === null) return filter;
  const place = { text: termText({ names: ['within'], operator: 'eq', value: organizationId }) };
  return joined([place, ...(partsOf(filter) ?? [{ text: filter }])]);
}

/** Rollouts to it: of many, those among the newest. */
function Uses({ id }: { id: string }) {
  const fields = 'target,state,firmwarePackageId,created';
  const { data, error } = useLoad(
    async () => (await readList('firmwareRollout', 1, { pageSize: maxRead, fields })).results ?? [],
    [],
  );
  const uses = data?.filter(({ target }) => target.fleetId === id);
  return (
    <Panel title={words.uses}>
      <ErrorNote error={error} />
      {!uses && !error && <Loading />}
      {uses?.length === 0 && <p class="soft">{words.unused}</p>}
      <ul class="plainlist">
        {uses?.map(({ id, state, firmwarePackageId, created }) => (
          <li key={id}>
            <Link href={`/firmware/rollouts/${id}`}>
              {words.rollout}: <NameOf kind="firmwarePackage" id={firmwarePackageId} />
            </Link>
            <span class="small soft">
              <Ago iso={created} />
            </span>
            <State of={state} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Positions({ id, version }: { id: string; version: string }) {
  const { data, error } = useLoad(
    () =>
      readColumns({ filter: { fleetId: id }, sort, page: 1, pageSize: maxRead }, [
        'latitude',
        'longitude',
        'geoIpLatitude',
        'geoIpLongitude',
      ]),
    [id, version],
  );
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  const { results = [], meta } = data;
  const positions = results.flatMap((device) => positionOf(device)?.at ?? []);
  if (positions.length === 0) return <p class="soft">{words.noPosition}</p>;
  return (
    <>
      <WorldMap at={positions} label={words.mapOf(positions.length)} />
      <p class="small soft">
        {words.mapped(positions.length, results.length)}
        {(meta?.count ?? 0) > results.length && ` ${words.mapCut(results.length)}`}
      </p>
    </>
  );
}
