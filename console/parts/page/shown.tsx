/** What every page shows, those of customers too: its heading, that something is read, times, and states. */
import { type ComponentChildren, Fragment, type JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { texts } from '../../words.ts';
import { hasGoneOn } from './focus.ts';

/** The address of the page whose heading is shown. */
let headed: string | undefined;

/** After a change of place the focus is on the heading of the new one. A part of a page, or a filter, is no other place. */
export function Heading({ title }: { title: string }) {
  const ref = useRef<HTMLHeadingElement>(null);
  const [path] = useLocation();
  useLayoutEffect(() => {
    if (headed === undefined || headed === path) return;
    scrollTo(0, 0);
    if (!hasGoneOn()) ref.current?.focus({ preventScroll: true });
  }, []);
  useLayoutEffect(() => {
    headed = path;
  }, [path]);
  return (
    <h1 ref={ref} tabIndex={-1}>
      {title}
    </h1>
  );
}

/** Something is being read; the text waits a moment, so that quick answers do not flicker. */
export function Loading() {
  return (
    <p class="empty late" aria-busy="true">
      {texts.loading}
    </p>
  );
}

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
export const timeText = (iso: string) => dates.format(new Date(iso));

export function Time({ iso }: { iso: string | null | undefined }) {
  return iso ? <time dateTime={iso}>{timeText(iso)}</time> : <span class="soft">–</span>;
}

export function Badge({ kind, text }: { kind?: 'good' | 'bad' | 'warn' | undefined; text: string }) {
  return <span class={kind ? `badge ${kind}` : 'badge'}>{text}</span>;
}

type PanelProps = Pick<JSX.IntrinsicElements['section'], 'aria-label' | 'aria-live'> & {
  title: string;
  kind?: 'narrow' | 'alarm' | 'failures';
  children: ComponentChildren;
};

/** A part of a page with a heading of its own. */
export const Panel = ({ title, kind, children, ...section }: PanelProps) => (
  <section {...section} class={kind ? `panel ${kind}` : 'panel'}>
    <h2>{title}</h2>
    {children}
  </section>
);

export type Fact = readonly [name: ComponentChildren, said: ComponentChildren] | false | undefined;

/** Names, each with what is said of it beside it. `pairs` stand side by side, and `stacked` ones have it below. */
export function Facts({ of, kind }: { of: readonly Fact[]; kind?: 'stacked' | 'pairs' | 'properties' }) {
  const Pair = kind === 'pairs' || kind === 'properties' ? 'div' : Fragment;
  const show = ([name, said]: Exclude<Fact, false | undefined>) => (
    <Pair>
      <dt>{name}</dt>
      <dd>{said}</dd>
    </Pair>
  );
  return <dl class={kind}>{of.map((fact) => fact && show(fact))}</dl>;
}

/** A figure of a `dl`. */
export const Stat = ({ label, children }: { label: string; children: ComponentChildren }) => (
  <div class="stat">
    <dt>{label}</dt>
    <dd>
      <b>{children}</b>
    </dd>
  </div>
);

/** Whether a device is connected. */
export const Online = ({ is }: { is: boolean }) => (
  <Badge kind={is ? 'good' : undefined} text={is ? texts.online : texts.offlineShort} />
);
