/** Search everywhere: what the API finds, and places and actions of the page. All by keyboard. */
import { useEffect, useId, useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { useLoad } from '../parts/data/load.ts';
import { useModal } from '../parts/dialogs/dialog.tsx';
import { isComposed, useTyped } from '../parts/forms/typed.ts';
import { leave } from '../parts/forms/unsaved.ts';
import { Icon, type IconName } from '../parts/page/icons.tsx';
import { texts } from '../texts.ts';
import { api, unwrap } from './api.ts';
import {
  type ConsolePlace,
  contains,
  guideOffers,
  type Offer,
  ownOffers,
  readHeadings,
  recentPages,
} from './offers.ts';
import { accountId, me } from './session.ts';

const words = texts.palette;

async function find(q: string, signal: AbortSignal) {
  if (q === '') return [];
  const query = { accountId: accountId.value, q };
  return (await unwrap(api.GET('/api/v1/search', { params: { query }, signal }))).hits;
}
type Hit = Awaited<ReturnType<typeof find>>[number];

/** What each kind looks like, and where it is shown. */
const kinds: Record<Hit['type'], { icon: IconName; path: (hit: Hit) => string }> = {
  device: { icon: 'devices', path: ({ id }) => `/devices/${id}` },
  organization: { icon: 'organizations', path: ({ id }) => `/organizations/${id}` },
  endUser: { icon: 'people', path: ({ organizationId }) => `/organizations/${organizationId}` },
  accountUser: { icon: 'people', path: () => '/people/account-users' },
  deviceTemplate: { icon: 'products', path: ({ id }) => `/products/${id}` },
  firmwarePackage: { icon: 'firmware', path: () => '/firmware' },
  application: { icon: 'programs', path: () => '/programs' },
  bridge: { icon: 'programs', path: () => '/programs/bridges' },
};

export function Palette({
  places,
  onKeys,
  onClose,
}: {
  places: readonly ConsolePlace[];
  onKeys: () => void;
  onClose: () => void;
}) {
  const [, go] = useLocation();
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  /** A scanner presses Enter before the answer is there: then it chooses when it comes. */
  const [entered, setEntered] = useState(false);
  const typed = text.trim();
  const asked = useTyped(typed);
  const { data, error, loading } = useLoad(async (signal) => ({ of: asked, hits: await find(asked, signal) }), [asked]);
  const isWaiting = !error && (loading || data?.of !== typed);
  const { data: headings = [] } = useLoad(readHeadings, []);
  const [kept] = useState(recentPages);
  const recent: Offer[] = kept
    .filter(({ name }) => contains(name, typed))
    .map(({ path, name }) => ({
      ...{ key: path, group: words.recent, name, run: () => go(path) },
      icon: places.find((place) => path.startsWith(place.path))?.icon ?? 'right',
    }));
  const found: Offer[] = (data?.hits ?? [])
    .map((hit) => ({ hit, path: kinds[hit.type].path(hit) }))
    .filter(({ path }) => !recent.some(({ key }) => key === path))
    .map(({ hit, path }) => ({
      key: hit.id,
      group: words.kinds[hit.type],
      icon: kinds[hit.type].icon,
      name: hit.name,
      detail: hit.match ?? (hit.detail === hit.name ? null : hit.detail),
      run: () => go(path),
    }));
  const own = ownOffers(places, typed, go, onKeys);
  const isNamed = own.some(({ name }) => name.toLowerCase() === typed.toLowerCase());
  // Customers look for their devices: the guide is for those who run the service.
  const guide = me.value?.kind === 'endUser' ? [] : guideOffers(headings, typed);
  const offers = [...recent, ...(isNamed ? [...own, ...found] : [...found, ...own]), ...guide];
  const choose = (offer: Offer | undefined) => {
    if (!offer) return;
    onClose();
    leave(offer.run);
  };
  useEffect(() => {
    if (!entered || isWaiting) return;
    setEntered(false);
    choose(offers[0]);
  }, [entered, isWaiting]);
  const press = (event: KeyboardEvent) => {
    if (isComposed(event)) return;
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    const move = moves[event.key];
    if (move !== undefined) setAt(Math.min(Math.max(0, at + move), offers.length - 1));
    else if (event.key === 'Enter') isWaiting && at === 0 ? setEntered(true) : choose(offers[at]);
    else return;
    event.preventDefault();
  };
  const type = (next: string) => {
    setText(next);
    setAt(0);
    setEntered(false);
  };
  const said = isWaiting ? '' : offers.length === 0 ? texts.nothingFound : words.found(offers.length);
  return <View {...{ text, type, press, offers, at, choose, said, error, onClose }} />;
}

function View({
  text,
  type,
  press,
  offers,
  at,
  choose,
  said,
  error,
  onClose,
}: {
  text: string;
  type: (text: string) => void;
  press: (event: KeyboardEvent) => void;
  offers: readonly Offer[];
  at: number;
  choose: (offer: Offer) => void;
  said: string;
  error: unknown;
  onClose: () => void;
}) {
  const dialog = useModal();
  const id = useId();
  useEffect(() => document.getElementById(`${id}-${at}`)?.scrollIntoView({ block: 'nearest' }), [at]);
  const groups = [...new Set(offers.map(({ group }) => group))];
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape does the same by keyboard
    <dialog
      ref={dialog}
      class="palette"
      aria-label={words.title}
      onClose={({ currentTarget }) => currentTarget.isConnected && onClose()}
      onClick={({ target, currentTarget }) => target === currentTarget && onClose()}
    >
      <input
        type="search"
        role="combobox"
        aria-label={words.title}
        aria-expanded
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={offers[at] ? `${id}-${at}` : undefined}
        autoComplete="off"
        spellcheck={false}
        maxLength={255}
        placeholder={words.hint}
        value={text}
        onInput={({ currentTarget }) => type(currentTarget.value)}
        onKeyDown={press}
      />
      <div id={`${id}-list`} class="offers" role="listbox" aria-label={words.results}>
        {groups.map((group) => (
          // biome-ignore lint/a11y/useSemanticElements: a fieldset has no place in a list box
          <div key={group} role="group" aria-label={group}>
            <p aria-hidden="true">{group}</p>
            {offers.map(
              (offer, place) =>
                offer.group === group && (
                  // biome-ignore lint/a11y/useKeyWithClickEvents: the input hears the keys
                  <div
                    key={offer.key}
                    id={`${id}-${place}`}
                    role="option"
                    tabIndex={-1}
                    aria-selected={place === at}
                    onClick={() => choose(offer)}
                  >
                    <Icon name={offer.icon} /> <b>{offer.name}</b> {offer.detail && <span>{offer.detail}</span>}
                  </div>
                ),
            )}
          </div>
        ))}
      </div>
      <p class="said" role="status">
        {error ? (error as Error).message : said}
      </p>
    </dialog>
  );
}
