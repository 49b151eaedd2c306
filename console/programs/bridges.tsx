/** Bridges: what each has to deliver still, what it could not deliver, and how it is tried, replayed and removed. */
import { createPortal } from 'preact/compat';
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { pageSize, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { localTime } from '../parts/formats/times.ts';
import { Button } from '../parts/forms/form.tsx';
import { ending } from '../parts/lists/deletions.ts';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { Listing } from '../parts/lists/listing.tsx';
import type { Verb } from '../parts/lists/verbs.tsx';
import { Badge, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { type Bridge, editing, newBridge, readBridge } from './bridge-form.tsx';

const words = texts.bridges;

export const bridges: EntityList<Bridge> = {
  label: texts.programs.tabs.bridges,
  kind: 'bridge',
  empty: words.none,
  every: 2000,
  newestFirst: true,
  load: async (page) => {
    const { results = [], ...rest } = await readList('bridge', page);
    return { ...rest, results: await Promise.all(results.map(({ id }) => readBridge(id))) };
  },
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    { name: 'kind', label: texts.kind, show: ({ kind }) => <Badge text={words.kinds[kind]} /> },
    { name: 'url', label: texts.address, wrap: true, show: shownAddress },
    { name: 'pending', label: texts.states.pending, show: ({ status }) => status.pending.toLocaleString() },
    { name: 'letters', label: words.deadLetters, show: (of) => <DeadLetters of={of} /> },
    { name: 'last', label: words.last, wrap: true, show: (of) => <Last of={of} /> },
  ],
  create: () => can('create', 'bridge') && newBridge,
  verbs: (of) =>
    can('update', 'bridge')
      ? [
          { text: words.test, run: () => test(of) },
          replaying(of),
          editing(of),
          can('delete', 'bridge') && ending('bridge', of),
        ]
      : [],
};

async function test({ id }: Bridge) {
  await unwrap(api.POST('/api/v1/bridges/{id}/test', { params: { path: { id } } }));
  return { said: words.tested };
}

/** A query is not shown: that there is one is. */
function shownAddress({ url, urlHasHiddenPart }: Pick<Bridge, 'url' | 'urlHasHiddenPart'>) {
  return <code>{urlHasHiddenPart ? `${url}?…` : url}</code>;
}

function Last({ of: { status } }: { of: Bridge }) {
  const { lastDelivered, lastFailure, lastFailureReason } = status;
  if (!lastFailure || (lastDelivered && lastFailure <= lastDelivered)) return <Time iso={lastDelivered} />;
  return (
    <span class="row">
      <Badge kind="bad" text={texts.states.failed} /> {lastFailureReason}
    </span>
  );
}

/** A payload as a text where it is one. */
function textOf(base64: string): string {
  const bytes = Uint8Array.from(atob(base64), (dead) => dead.charCodeAt(0));
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return base64;
  }
}

/** How many there are, and the list of them. */
function DeadLetters({ of: { id, name, status } }: { of: Bridge }) {
  const [page, setPage] = useState(0);
  const count = status.deadLetters.toLocaleString();
  const close = () => setPage(0);
  const load = async (page: number) => {
    const params = { path: { id }, query: { page, pageSize } };
    return (await unwrap(api.GET('/api/v1/bridges/{id}/dead-letters', { params }))).deadLetters;
  };
  const dialog = (
    <Dialog title={words.deadLettersOf(name)} onClose={close} wide>
      <Listing
        label={words.deadLetters}
        page={page}
        onPage={setPage}
        load={load}
        columns={[
          { name: 'died', label: texts.time, show: ({ died }) => <Time iso={died} /> },
          {
            name: 'device',
            label: texts.channel,
            show: ({ deviceId, channel }) => <Link href={`/devices/${deviceId}`}>{channel}</Link>,
          },
          { name: 'reason', label: texts.reason, wrap: true, show: ({ reason }) => reason },
          {
            name: 'payload',
            label: texts.message,
            wrap: true,
            show: ({ payloadBase64 }) => <code>{textOf(payloadBase64).slice(0, 300)}</code>,
          },
        ]}
        empty={<p>{words.noDeadLetters}</p>}
      />
      <CloseButton onClose={close} />
    </Dialog>
  );
  return (
    <>
      <Button
        label={count}
        class="link"
        aria-label={texts.verbOf(count, words.deadLettersOf(name))}
        onClick={() => setPage(1)}
      />
      {page > 0 && createPortal(dialog, document.body)}
    </>
  );
}

const hour = 3_600_000;

function replaying({ id, name }: Bridge): Verb {
  const form = {
    title: words.replayOf(name),
    verb: words.replay,
    values: { from: localTime(Date.now() - hour), to: localTime(Date.now()) },
    fields: () => [
      <p class="soft">{words.replayHint}</p>,
      { name: 'from', label: words.from, type: 'datetime-local', required: true },
      { name: 'to', label: words.to, type: 'datetime-local', required: true },
    ],
    save: async ({ from = '', to = '' }) => {
      const body = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
      const { replay } = await unwrap(api.POST('/api/v1/bridges/{id}/replay', { params: { path: { id } }, body }));
      return { said: words.replayed(replay.messages) };
    },
  };
  return { text: words.replay, form };
}
