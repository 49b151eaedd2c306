/** Bridges: what each has to deliver still, what it could not deliver, and how it is tried, replayed and removed. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { CloseButton, Dialog } from '../parts/dialog.tsx';
import { ActionButton, Field, Form, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Badge, Time } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { EditBridge } from './bridge-form.tsx';

const words = texts.bridges;
async function readBridge(id: string) {
  return (await unwrap(api.GET('/api/v1/bridges/{id}', { params: { path: { id } } }))).bridge;
}
type Bridge = Awaited<ReturnType<typeof readBridge>>;

async function readBridges(page: number) {
  const query = { accountId: accountId.value, page, pageSize };
  const { results = [], ...rest } = (await unwrap(api.GET('/api/v1/bridges', { params: { query } }))).bridges;
  return { ...rest, results: await Promise.all(results.map(({ id }) => readBridge(id))) };
}

export function Bridges({ round, onDelete }: { round: number; onDelete: (bridge: Bridge) => void }) {
  const [open, setOpen] = useState<{ kind: 'letters' | 'replay' | 'edit'; of: Bridge }>();
  const [edits, setEdits] = useState(0);
  const close = () => setOpen(undefined);
  const test = async ({ id }: Bridge) => {
    await unwrap(api.POST('/api/v1/bridges/{id}/test', { params: { path: { id } } }));
    toast(words.tested);
  };
  return (
    <>
      <Listing
        label={texts.programs.tabs.bridges}
        on={[round, edits]}
        every={2000}
        newestFirst
        load={readBridges}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          { name: 'kind', label: texts.programs.kind, show: ({ kind }) => <Badge text={words.kinds[kind]} /> },
          { name: 'url', label: texts.programs.address, wrap: true, show: shownAddress },
          { name: 'pending', label: words.pending, show: ({ status }) => status.pending.toLocaleString() },
          {
            name: 'letters',
            label: words.deadLetters,
            show: (of) => (
              <button
                type="button"
                class="link"
                aria-label={texts.verbOf(of.status.deadLetters.toLocaleString(), words.deadLettersOf(of.name))}
                onClick={() => setOpen({ kind: 'letters', of })}
              >
                {of.status.deadLetters.toLocaleString()}
              </button>
            ),
          },
          {
            name: 'last',
            label: words.last,
            wrap: true,
            show: ({ status: { lastDelivered, lastFailure, lastFailureReason } }) =>
              lastFailure && (!lastDelivered || lastFailure > lastDelivered) ? (
                <span class="row">
                  <Badge kind="bad" text={words.failed} /> {lastFailureReason}
                </span>
              ) : (
                <Time iso={lastDelivered} />
              ),
          },
          {
            name: 'do',
            label: texts.actions,
            show: (of) =>
              can('update', 'bridge') && (
                <span class="row">
                  <ActionButton label={words.test} of={of.name} act={() => test(of)} onError={failed} kind="plain" />
                  <button
                    type="button"
                    class="plain"
                    aria-label={texts.verbOf(words.replay, of.name)}
                    onClick={() => setOpen({ kind: 'replay', of })}
                  >
                    {words.replay}
                  </button>
                  <button
                    type="button"
                    class="plain"
                    aria-label={texts.verbOf(texts.edit, of.name)}
                    onClick={() => setOpen({ kind: 'edit', of })}
                  >
                    {texts.edit}
                  </button>
                  <button
                    type="button"
                    class="plain"
                    aria-label={texts.verbOf(texts.delete, of.name)}
                    onClick={() => onDelete(of)}
                  >
                    {texts.delete}
                  </button>
                </span>
              ),
          },
        ]}
        empty={<p>{words.none}</p>}
      />
      {open?.kind === 'letters' && <DeadLetters of={open.of} onClose={close} />}
      {open?.kind === 'replay' && <Replay of={open.of} onClose={close} />}
      {open?.kind === 'edit' && (
        <EditBridge
          of={open.of}
          onClose={close}
          onDone={() => {
            toast(texts.saved);
            setEdits(edits + 1);
            close();
          }}
        />
      )}
    </>
  );
}

/** A query is not shown: that there is one is. */
function shownAddress({ url, urlHasHiddenPart }: Pick<Bridge, 'url' | 'urlHasHiddenPart'>) {
  return <code>{urlHasHiddenPart ? `${url}?…` : url}</code>;
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

function DeadLetters({ of: { id, name }, onClose }: { of: Bridge; onClose: () => void }) {
  const [page, setPage] = useState(1);
  return (
    <Dialog title={words.deadLettersOf(name)} onClose={onClose} wide>
      <Listing
        label={words.deadLetters}
        page={page}
        onPage={setPage}
        load={async (page) => {
          const params = { path: { id }, query: { page, pageSize } };
          return (await unwrap(api.GET('/api/v1/bridges/{id}/dead-letters', { params }))).deadLetters;
        }}
        columns={[
          { name: 'died', label: texts.time, show: ({ died }) => <Time iso={died} /> },
          {
            name: 'device',
            label: words.device,
            show: ({ deviceId, channel }) => <Link href={`/devices/${deviceId}`}>{channel}</Link>,
          },
          { name: 'reason', label: texts.device.reason, wrap: true, show: ({ reason }) => reason },
          {
            name: 'payload',
            label: texts.message,
            wrap: true,
            show: ({ payloadBase64 }) => <code>{textOf(payloadBase64).slice(0, 300)}</code>,
          },
        ]}
        empty={<p>{words.noDeadLetters}</p>}
      />
      <CloseButton onClose={onClose} />
    </Dialog>
  );
}

/** The value of a field of local time, minutes from now. */
function localTime(minutesAgo: number): string {
  const now = new Date();
  return new Date(now.getTime() - (now.getTimezoneOffset() + minutesAgo) * 60_000).toISOString().slice(0, 16);
}

function Replay({ of: { id, name }, onClose }: { of: Bridge; onClose: () => void }) {
  const save = async ({ from = '', to = '' }: Values) => {
    const body = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
    const { replay } = await unwrap(api.POST('/api/v1/bridges/{id}/replay', { params: { path: { id } }, body }));
    toast(words.replayed(replay.messages));
    onClose();
  };
  return (
    <Dialog title={words.replayOf(name)} onClose={onClose}>
      <Form save={save} verb={words.replay} onCancel={onClose}>
        <p class="soft">{words.replayHint}</p>
        <Field label={words.from} name="from" type="datetime-local" required defaultValue={localTime(60)} />
        <Field label={words.to} name="to" type="datetime-local" required defaultValue={localTime(0)} />
      </Form>
    </Dialog>
  );
}
