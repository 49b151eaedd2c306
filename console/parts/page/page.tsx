/** The head of every place: its name, its actions, and "Show the call". */
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { calls, curlOf } from '../../app/calls.ts';
import { ApiError } from '../../app/errors.ts';
import { helpOf } from '../../app/help.ts';
import { useRecent } from '../../app/offers.ts';
import { can } from '../../app/session.ts';
import { texts } from '../../texts.ts';
import { Code } from '../codes/code.tsx';
import { Stale } from '../data/stale.tsx';
import { CloseButton, Dialog } from '../dialogs/dialog.tsx';
import { Button, ErrorNote } from '../forms/form.tsx';
import { useBack } from './back.ts';
import { Heading, Loading } from './shown.tsx';
import { useTitle } from './title.ts';

export { Badge, type Fact, Facts, Loading, Online, Panel, Stat, Time, timeText } from './shown.tsx';

export function Page({
  title,
  part,
  actions,
  trash,
  isWaiting = false,
  children,
}: {
  title: string;
  /** What of it is shown, for the title of the document. */
  part?: string | undefined;
  actions?: ComponentChildren;
  /** Where in the trash is what was deleted here. */
  trash?: keyof typeof trashed | undefined;
  isWaiting?: boolean;
  children: ComponentChildren;
}) {
  const [path] = useLocation();
  useRecent(path, isWaiting ? undefined : title);
  const [shown, setShown] = useState(false);
  useTitle(part ? `${title}, ${part}` : title);
  useBack();
  return (
    <>
      <div class="head">
        <Heading title={title} />
        <div class="row">
          {actions}
          {trash !== undefined && <TrashLink of={trash} />}
          <Button label={texts.showCall} class="plain" onClick={() => setShown(true)} />
          <Help />
        </div>
      </div>
      <Stale />
      {children}
      {shown && <Calls onClose={() => setShown(false)} />}
    </>
  );
}

/** To the page of the guide about this place. In another tab: what was begun here is not lost. */
export function Help() {
  const [path] = useLocation();
  return (
    <a class="button plain" href={helpOf(path)} target="_blank" rel="noopener">
      {texts.help}
    </a>
  );
}

/** Parts of the trash, and the right to delete what is there. */
export const trashed = {
  '': 'device',
  organizations: 'organization',
  people: 'endUser',
  products: 'deviceTemplate',
  channels: 'channelTemplate',
  fields: 'customField',
  firmware: 'firmwarePackage',
  fleets: 'fleet',
  'enrollment-groups': 'enrollmentGroup',
  roles: 'role',
} as const;

/** From where something was deleted to where it is taken back. */
export function TrashLink({ of }: { of: keyof typeof trashed }) {
  if (!can('delete', trashed[of])) return null;
  return (
    <Link
      class="button"
      href={of === '' ? '/trash' : `/trash/${of}`}
      aria-label={texts.verbOf(texts.showDeleted, texts.trash.tabs[of].toLowerCase())}
    >
      {texts.showDeleted}
    </Link>
  );
}

/** A page whose thing is not there yet, or cannot be shown. */
export function Waiting({
  title,
  error,
  trash,
}: {
  title: string;
  error: unknown;
  /** Where it is if it was deleted. */
  trash?: keyof typeof trashed;
}) {
  const isGone = error instanceof ApiError && error.status === 410;
  return (
    <Page title={title} trash={isGone ? trash : undefined} isWaiting>
      {error ? <ErrorNote error={error} /> : <Loading />}
    </Page>
  );
}

/** The last calls of the page, each as a command and its answer. Those that come meanwhile would move what somebody reads. */
function Calls({ onClose }: { onClose: () => void }) {
  const [made] = useState(() => calls.peek());
  return (
    <Dialog title={texts.showCall} onClose={onClose} wide>
      <p class="soft">{texts.showCallHint}</p>
      {made.map((call, place) => (
        <details key={`${call.requestId}${place}`} open={place === 0}>
          <summary>
            <code>
              {call.method} {call.url.replace(location.origin, '')}
            </code>{' '}
            {call.status}
          </summary>
          <Code label={texts.theCall} text={curlOf(call)} />
          {call.answer && <Code label={texts.theAnswer} text={call.answer} />}
        </details>
      ))}
      <CloseButton onClose={onClose} />
    </Dialog>
  );
}

/** Parts of a page that have an address each. */
export function Tabs({
  label = texts.parts,
  base,
  current,
  tabs,
}: {
  label?: string | undefined;
  base: string;
  current: string;
  tabs: readonly (readonly [string, string])[];
}) {
  const nav = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    // On a phone the tabs are wider than the page.
    nav.current?.querySelector('[aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' });
  }, [current]);
  return (
    <nav class="tabs" aria-label={label} ref={nav}>
      {tabs.map(([name, label]) => (
        <Link
          key={name}
          href={name === '' ? base : `${base}/${name}`}
          aria-current={name === current ? 'page' : undefined}
        >
          {label}
        </Link>
      ))}
    </nav>
  );
}
