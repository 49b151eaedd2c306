/** Chooses one organization, product, device or person: from a list of a few, or by searching many. */
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { paths } from '../../api-types.d.ts';
import { api, unwrap } from '../../app/api.ts';
import { readList } from '../../app/entities.ts';
import { accountId } from '../../app/session.ts';
import { texts } from '../../words.ts';
import { useLoad } from '../data/load.ts';
import { nameOf } from '../data/names.tsx';
import { Select } from './form.tsx';
import { isComposed, useTyped } from './typed.ts';

/** How many a list shows; of more, those whose name contains what is typed. */
const maxListed = 50;
/** Products are few, and the API finds them by their whole name only. */
const maxProducts = 5000;
const sliceSize = 1000;

interface Named {
  id: string;
  name: string;
}
export interface Found {
  found: Named[];
  count: number;
}

async function findOrganizations(name: string, signal: AbortSignal): Promise<Found> {
  const query = { pageSize: maxListed, sortBy: 'name' as const, fields: 'name', ...(name && { name }) };
  const { results = [], meta } = await readList('organization', 1, query, signal);
  return { found: results, count: meta?.count ?? 0 };
}

async function findProducts(name: string, signal: AbortSignal): Promise<Found> {
  const all: Named[] = [];
  for (let page = 1; all.length < maxProducts; page += 1) {
    const query = { pageSize: sliceSize, fields: 'name' };
    const { results = [], meta } = await readList('deviceTemplate', page, query, signal);
    all.push(...results);
    if (all.length >= (meta?.count ?? 0)) break;
  }
  const matching = all.filter((one) => one.name.toLowerCase().includes(name.toLowerCase()));
  return { found: matching.slice(0, maxListed), count: matching.length };
}

async function findDevices(typed: string, signal: AbortSignal): Promise<Found> {
  const query = { pageSize: maxListed, fields: 'serialNumber', ...(typed && { serialNumber: typed }) };
  const { results = [], meta } = await readList('device', 1, query, signal);
  return { found: results.map(({ id, serialNumber }) => ({ id, name: serialNumber })), count: meta?.count ?? 0 };
}

type HitType = paths['/api/v1/search']['get']['responses'][200]['content']['application/json']['hits'][number]['type'];

/** Who may do something, by the search for everything; ids have their type before them. Without a text nobody is offered. */
function findWho(...types: HitType[]) {
  return async (q: string, signal: AbortSignal): Promise<Found> => {
    if (q === '') return { found: [], count: Number.POSITIVE_INFINITY };
    const query = { accountId: accountId.value, q };
    const { hits } = await unwrap(api.GET('/api/v1/search', { params: { query }, signal }));
    const found = hits
      .filter(({ type }) => types.includes(type))
      .map(({ type, id, name, detail }) => ({
        id: `${type}:${id}`,
        name: type === 'application' || !detail || detail === name ? name : `${name}, ${detail}`,
      }));
    return { found, count: found.length };
  };
}

const find = {
  organization: findOrganizations,
  product: findProducts,
  device: findDevices,
  person: findWho('accountUser', 'endUser'),
  anyone: findWho('accountUser', 'endUser', 'application', 'device'),
};
/** What the ids of values are. */
const named = {
  organization: 'organization',
  product: 'deviceTemplate',
  device: 'device',
  person: 'identity',
  anyone: 'identity',
} as const;

export interface PickerProps {
  label: string;
  name?: string;
  value?: string | undefined;
  /** What stands for no choice; without it the first is chosen. */
  none?: string;
  onText?: (text: string) => void;
  kind: keyof typeof find;
}

export function Picker(props: PickerProps) {
  const { kind, none, ...select } = props;
  const { data } = useLoad((signal) => find[kind]('', signal), [kind]);
  if (data && data.count > data.found.length)
    return <Chooser key={kind} {...props} find={find[kind]} nameOf={(id) => nameOf(named[kind], id)} first={data} />;
  const options: (readonly [string, string])[] = (data?.found ?? []).map(({ id, name }) => [id, name]);
  if (none !== undefined) options.unshift(['', none]);
  // A form that is sent before the list has come must not change what was chosen.
  const { value } = select;
  if (value && !options.some(([id]) => id === value))
    options.push([value, data ? nameOf(named[kind], value) || value : texts.loading]);
  return <Select {...select} busy={!data} options={options} key={String(data === undefined)} />;
}

/** Chooses one of many by a part of its name. `first`: what is found without a text. */
export function Chooser({
  find,
  nameOf,
  none,
  label,
  name,
  value,
  onText,
  first,
}: Omit<PickerProps, 'kind'> & {
  find: (text: string, signal: AbortSignal) => Promise<Found>;
  nameOf: (id: string) => string | undefined;
  first: Found;
}) {
  const id = useId();
  const [own, setOwn] = useState<Named | undefined>(value === undefined ? undefined : { id: value, name: '' });
  const [typed, setTyped] = useState<string>();
  const [at, setAt] = useState(0);
  const asked = useTyped(typed ?? '');
  const { data = first, loading } = useLoad(
    async (signal) => (asked === '' ? undefined : find(asked, signal)),
    [asked, first.count],
  );
  const isWaiting = loading || asked !== (typed ?? '');
  const chosen = onText ? value : own?.id;
  const known = own?.id === chosen ? own?.name : undefined;
  const chosenName = chosen ? known || nameOf(chosen) : none;
  const isOpen = typed !== undefined;
  const offered = [...(none === undefined || typed ? [] : [{ id: '', name: none }]), ...data.found];
  const choose = (one: Named) => {
    setOwn(one);
    setTyped(undefined);
    onText?.(one.id);
  };
  const press = (event: KeyboardEvent) => {
    if (isComposed(event)) return;
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    const move = moves[event.key];
    const one = offered[at];
    if (move !== undefined) {
      if (isOpen) setAt(Math.min(Math.max(0, at + move), offered.length - 1));
      else setTyped('');
    } else if (event.key === 'Enter' && isOpen && one) {
      // The first may be what a shorter text has found.
      if (!isWaiting || at > 0) choose(one);
    } else if (event.key === 'Escape' && isOpen) setTyped(undefined);
    else return;
    event.preventDefault();
  };
  return (
    <div class="field chooser">
      <label for={id}>{label}</label>
      <input
        id={id}
        role="combobox"
        aria-expanded={isOpen}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={isOpen && offered[at] ? `${id}-${at}` : undefined}
        autoComplete="off"
        placeholder={texts.searchByName}
        value={typed ?? chosenName ?? ''}
        onFocus={(event) => event.currentTarget.select()}
        onClick={() => typed === undefined && setTyped('')}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          setAt(0);
        }}
        onBlur={() => setTyped(undefined)}
        onKeyDown={press}
      />
      {name && <input type="hidden" name={name} value={chosen ?? ''} />}
      {isOpen && (
        // biome-ignore lint/a11y/noStaticElementInteractions: a press must not take the focus from the input
        <div class="options" aria-busy={isWaiting || undefined} onMouseDown={(event) => event.preventDefault()}>
          <Options id={id} label={label} offered={offered} at={at} choose={choose} onKeyDown={press} />
          {Number.isFinite(data.count) && data.count > data.found.length && (
            <p class="small soft">{texts.moreFound(data.count - data.found.length)}</p>
          )}
          {data.count === 0 && <p class="small soft">{texts.nothingFound}</p>}
        </div>
      )}
    </div>
  );
}

function Options({
  id,
  label,
  offered,
  at,
  choose,
  onKeyDown,
}: {
  id: string;
  label: string;
  offered: readonly Named[];
  at: number;
  choose: (one: Named) => void;
  onKeyDown: (event: KeyboardEvent) => void;
}) {
  const list = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    list.current?.children[at]?.scrollIntoView({ block: 'nearest' });
  }, [at]);
  return (
    <div id={`${id}-list`} ref={list} role="listbox" tabIndex={-1} aria-label={label}>
      {offered.map((one, place) => (
        <div
          key={one.id}
          id={`${id}-${place}`}
          role="option"
          tabIndex={-1}
          aria-selected={place === at}
          onClick={() => choose(one)}
          onKeyDown={onKeyDown}
        >
          {one.name}
        </div>
      ))}
    </div>
  );
}
