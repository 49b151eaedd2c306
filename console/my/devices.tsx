/** My devices: a card for each, with the value that matters. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { accountId, can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { Ago } from '../parts/formats/ago.tsx';
import { numbers } from '../parts/formats/times.ts';
import { Button, ErrorNote } from '../parts/forms/form.tsx';
import { Loading, Online } from '../parts/page/shown.tsx';
import { texts } from '../words.ts';
import { MyPage } from './page.tsx';
import { type Card, nameOf, readCards, readCategories, shownAs } from './read.ts';
import { words } from './words.ts';

/** Cards at first, and with each "Show more". */
const step = 24;
const more = 176;
/** Milliseconds until values are read again. */
const readEvery = 15_000;
/** Among how many a search finds one: names are compared here, since the API finds serial numbers alone. */
const searched = 1000;
/** Who has fewer finds them without a search. */
const searchFrom = 9;

export function Devices({ brand }: { brand: string }) {
  const [shown, setShown] = useState(step);
  const [typed, setTyped] = useState('');
  const asked = typed.trim().toLowerCase();
  const size = asked === '' ? shown : searched;
  const { data, error } = useLoad((signal) => readCards(size, signal), [size], readEvery);
  const found = data?.results.filter((one) => wordsOf(one).includes(asked)) ?? [];
  const claim = can('create', 'association') && (
    <a class="button primary" href={`/claim?account=${accountId.value}`}>
      {texts.claim.title}
    </a>
  );
  return (
    <MyPage title={words.title} brand={brand} actions={claim}>
      {(typed !== '' || (data && data.count >= searchFrom)) && (
        <input
          type="search"
          aria-label={words.find}
          placeholder={words.find}
          value={typed}
          onInput={({ currentTarget }) => setTyped(currentTarget.value)}
        />
      )}
      {!data ? (
        error ? (
          <ErrorNote error={error} />
        ) : (
          <Loading />
        )
      ) : found.length === 0 ? (
        <div class="panel empty">
          <p>{asked === '' ? words.none : texts.nothingFound}</p>
          {asked === '' && claim && <p>{words.noneHint}</p>}
        </div>
      ) : (
        <Cards of={found} />
      )}
      {asked === '' && data && data.count > data.results.length && (
        <p class="gap">
          <Button label={words.more} onClick={() => setShown(shown + more)} />
        </p>
      )}
    </MyPage>
  );
}

const wordsOf = (one: Card) => `${nameOf(one)} ${one.serialNumber} ${one.deviceTemplate?.name}`.toLowerCase();

function Cards({ of }: { of: readonly Card[] }) {
  const products = new Map(of.map((one) => [one.deviceTemplateId, one]));
  const { data } = useLoad(
    async () =>
      new Map(await Promise.all([...products].map(async ([id, one]) => [id, await readCategories(one)] as const))),
    [[...products.keys()].sort()],
  );
  return (
    <ul class="values">
      {of.map((one) => (
        <DeviceCard key={one.id} of={one} {...shownAs(one, data?.get(one.deviceTemplateId) ?? [])} />
      ))}
    </ul>
  );
}

function DeviceCard({ of, label, unit }: { of: Card; label: string; unit: string }) {
  const { id, serialNumber, connected, deviceTemplate, values } = of;
  const last = values?.primary;
  return (
    <li class="value">
      <Link href={`/${id}`}>
        <b>{nameOf(of)}</b>
      </Link>
      <p class="small soft">
        {deviceTemplate?.name}
        {nameOf(of) !== serialNumber && <> · {serialNumber}</>}
      </p>
      <p class="figure">
        {last ? (
          <>
            {typeof last.value === 'number' ? numbers.format(last.value) : last.value}{' '}
            {unit && <span class="unit">{unit}</span>}
          </>
        ) : (
          <span class="soft">–</span>
        )}
      </p>
      <p class="foot">
        <span>{last ? label : words.noValue}</span>
        {last && <Ago iso={last.time} />}
      </p>
      <Online is={connected} />
    </li>
  );
}
