/** What the search of everything offers besides what the API finds: places, their parts, actions, the guide, and what was open lately. */
import { useLayoutEffect } from 'preact/hooks';
import type { IconName } from '../parts/page/icons.tsx';
import { texts } from '../texts.ts';
import { type Action, begin } from './actions.ts';
import { notePage, pagesOf } from './recent.ts';
import { accountId, can, me, signOut } from './session.ts';

const words = texts.palette;

export interface ConsolePlace {
  path: string;
  icon: IconName;
  name: string;
}

export interface Offer {
  key: string;
  group: string;
  icon: IconName;
  name: string;
  detail?: string | null;
  run: () => void;
}

type Right = readonly [action: 'create' | 'read' | 'update', kind: string];

/** Parts of places and settings: the right without which one is not shown, and what else people call it. */
const parts: readonly (readonly [path: string, name: string, right: Right, others?: string])[] = [
  ['/people/account-users', texts.people.tabs['account-users'], ['read', 'accountUser'], words.others.admins],
  ['/people/roles', texts.people.tabs.roles, ['read', 'role'], words.others.roles],
  ['/factory/stations', texts.factory.tabs.stations, ['read', 'application']],
  ['/factory/verifications', texts.factory.tabs.verifications, ['read', 'verification']],
  ['/enrollment/certificates', texts.enrollment.tabs.certificates, ['read', 'mqttCertificate']],
  ['/enrollment/authorities', texts.enrollment.tabs.authorities, ['read', 'certificateAuthority'], words.others.cas],
  ['/firmware/rollouts', texts.firmware.tabs.rollouts, ['read', 'firmwareRollout']],
  [
    '/programs/identity-providers',
    texts.programs.tabs['identity-providers'],
    ['read', 'identityProvider'],
    words.others.sso,
  ],
  ['/programs/bridges', texts.programs.tabs.bridges, ['read', 'bridge'], words.others.bridges],
  ['/account', texts.account.changePassword, ['read', 'profile'], words.others.password],
  ['/account', texts.account.retention, ['read', 'account'], words.others.retention],
  ['/account/tokens', texts.account.tabs.tokens, ['read', 'device'], words.others.tokens],
  ['/account/branding', texts.account.tabs.branding, ['update', 'account'], words.others.branding],
  ['/account/usage', texts.account.tabs.usage, ['read', 'account'], words.others.usage],
  ['/account/audit', texts.account.tabs.audit, ['read', 'auditRecord'], words.others.audit],
  ['/account/health', texts.account.tabs.health, ['read', 'account']],
];

/** What is made where: begun there at once. */
const makings: readonly (readonly [path: `/${string}`, name: string, kind: string, action?: Action])[] = [
  ['/devices', texts.devices.new, 'device', 'newDevice'],
  ['/devices', texts.devices.import, 'device', 'importDevices'],
  ['/fleets', texts.fleets.new, 'fleet'],
  ['/organizations', texts.organizations.new, 'organization', 'newOrganization'],
  ['/people', texts.people.newEndUser, 'endUser'],
  ['/people/account-users', texts.people.newAdmin, 'accountUser'],
  ['/people/roles', texts.roles.new, 'role'],
  ['/products', texts.products.new, 'deviceTemplate'],
  ['/factory', texts.factory.new, 'job'],
  ['/factory/stations', texts.stations.new, 'application'],
  ['/enrollment', texts.enrollment.new[''], 'enrollmentGroup'],
  ['/enrollment/authorities', texts.enrollment.new.authorities, 'certificateAuthority'],
  ['/firmware', texts.firmware.newPackage, 'firmwarePackage'],
  ['/firmware/rollouts', texts.firmware.newRollout, 'firmwareRollout'],
  ['/programs', texts.programs.new[''], 'application'],
  ['/programs/identity-providers', texts.programs.new['identity-providers'], 'identityProvider'],
  ['/programs/bridges', texts.programs.new.bridges, 'bridge'],
];

type Go = (path: string) => void;

/** Places, their parts, and actions whose name, or another word for them, has the text. */
export function ownOffers(places: readonly ConsolePlace[], typed: string, go: Go, onKeys: () => void): Offer[] {
  const placeAt = (path: string) => places.find((place) => path.startsWith(place.path));
  const offers: (Offer & { others?: string | undefined })[] = [
    ...places.map(({ path, icon, name }) => ({ key: path, group: words.places, icon, name, run: () => go(path) })),
    ...parts.flatMap(([path, name, right, others]) => {
      const place = placeAt(path);
      if (!place || !can(...right)) return [];
      const { icon, name: detail } = place;
      return [{ key: path + name, group: words.settings, icon, name, detail, others, run: () => go(path) }];
    }),
    ...makings.flatMap(([path, name, kind, action = path]) => {
      const run = () => {
        begin(action);
        go(path);
      };
      const isShown = placeAt(path) !== undefined && can('create', kind);
      return isShown ? [{ key: name, group: texts.actions, icon: 'more' as const, name, run }] : [];
    }),
    { key: 'keys', group: texts.actions, icon: 'more', name: texts.keys.title, run: onKeys },
    { key: 'out', group: texts.actions, icon: 'close', name: texts.signOut, run: () => void signOut() },
  ];
  // Without a text the list is short: what everybody looks for has a place.
  return offers.filter(({ name, group, others = '' }) =>
    typed === '' ? group !== words.settings : contains(`${name} ${others}`, typed),
  );
}

export const contains = (name: string, text: string) => name.toLowerCase().includes(text.toLowerCase());

interface Heading {
  path: string;
  title: string;
  heading: string;
}

/** Read once, with the first search. */
let headings: Promise<Heading[]> | undefined;

export function readHeadings(): Promise<Heading[]> {
  headings ??= fetch('/guide/headings.json')
    .then((answer) => (answer.ok ? answer.json() : []))
    .catch(() => {
      headings = undefined;
      return [];
    });
  return headings as Promise<Heading[]>;
}

const maxHeadings = 6;
/** Words of a question that no heading is found by. */
const small = new Set('a an and can do does for how i in is it my of on or the to what where with'.split(' '));

/** The headings of the guide that have the words of the text, or most of them, whatever their endings. */
export function guideOffers(all: readonly Heading[], typed: string): Offer[] {
  const wanted = typed.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const stems = wanted.filter((word) => !small.has(word)).map((word) => word.replace(/(?<=.{3})(ing|es|s)$/, ''));
  if (stems.join('').length < 3) return [];
  const count = (text: string) => stems.filter((stem) => contains(text, stem)).length;
  return all
    .map((one) => ({ ...one, found: count(`${one.title} ${one.heading}`), own: count(one.heading) }))
    .filter(({ found }) => found >= stems.length * 0.6)
    .sort((a, b) => b.found - a.found || b.own - a.own)
    .slice(0, maxHeadings)
    .map(({ path, title, heading }) => ({
      key: `guide/${path}`,
      group: words.guide,
      icon: 'guide',
      name: heading,
      detail: heading === title ? null : title,
      run: () => void open(`/guide/${path}`, '_blank', 'noopener'),
    }));
}

const owner = () => `${accountId.value} ${me.value?.id}`;

/** Pages of one thing that this person has opened lately. */
export const recentPages = () => pagesOf(owner());

/** Notes that the page of one thing is open: its address has an id. */
export function useRecent(path: string, name: string | undefined): void {
  useLayoutEffect(() => {
    const [of] = /^\/.*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/.exec(path) ?? [];
    if (of !== undefined && name !== undefined) notePage(owner(), { path: of, name });
  }, [path, name]);
}
