/** Factory: jobs as they run, results to download once, labels, and verifications. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Progress, readJob } from '../devices/bulk.tsx';
import { Import } from '../devices/files.tsx';
import { UnitsWarning } from '../parts/broker-warning.tsx';
import { Confirm } from '../parts/dialog.tsx';
import { ActionButton } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge, Page, Tabs, Time, Waiting } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { Stations } from './stations.tsx';

const words = texts.factory;
const kinds: Record<string, 'good' | 'bad' | 'warn'> = {
  succeeded: 'good',
  failed: 'bad',
  running: 'warn',
  pending: 'warn',
};

const rowKinds: Record<string, 'good' | 'bad'> = { done: 'good', failed: 'bad' };

interface Ended {
  state: keyof typeof words.states;
  done: number;
  failed: number;
  skipped: number;
}

/** A job that has come to its end is no success if a row failed, or if all were skipped. */
function State({ of: { state, done, failed, skipped } }: { of: Ended }) {
  if (state === 'succeeded' && failed > 0) return <Badge kind="warn" text={words.endedWithFailures} />;
  if (state === 'succeeded' && done === 0 && skipped > 0) return <Badge kind="warn" text={words.nothingDone} />;
  return <Badge kind={kinds[state]} text={words.states[state]} />;
}

export function Factory({ id }: { id: string | undefined }) {
  const [importing, setImporting] = useState(false);
  if (id !== undefined && id !== 'verifications' && id !== 'stations') return <Job key={id} id={id} />;
  const isStations = id === 'stations';
  const query = { accountId: accountId.value, pageSize };
  return (
    <Page
      title={texts.places.factory}
      actions={
        can('create', isStations ? 'application' : 'job') && (
          <button type="button" class="primary" onClick={() => setImporting(true)}>
            {isStations ? texts.stations.new : words.new}
          </button>
        )
      }
    >
      <Tabs base="/factory" current={id ?? ''} tabs={Object.entries(words.tabs)} />
      {id === undefined ? (
        <Listing
          label={words.tabs['']}
          every={3000}
          newestFirst
          load={async (page) =>
            (await unwrap(api.GET('/api/v1/provisioning/jobs', { params: { query: { ...query, page } } }))).jobs
          }
          href={({ id }) => `/factory/${id}`}
          columns={[
            { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
            {
              name: 'action',
              label: words.action,
              show: ({ action, dryRun }) => `${words.actions[action]}${dryRun ? ` (${words.dryRun})` : ''}`,
            },
            {
              name: 'state',
              label: texts.devices.state,
              show: (job) => <State of={job} />,
            },
            { name: 'done', label: words.done, show: (job) => words.doneOf(job) },
          ]}
          empty={<p>{words.none}</p>}
        />
      ) : isStations ? (
        <Stations making={importing} onClose={() => setImporting(false)} />
      ) : (
        <Listing
          label={words.tabs.verifications}
          load={async (page) =>
            (await unwrap(api.GET('/api/v1/provisioning/verifications', { params: { query: { ...query, page } } })))
              .verifications
          }
          columns={[
            {
              name: 'serialNumber',
              label: texts.devices.serialNumber,
              show: ({ serialNumber, deviceId }) => <Link href={`/devices/${deviceId}`}>{serialNumber}</Link>,
            },
            {
              name: 'passed',
              label: words.passed,
              show: ({ passed }) => <Badge kind={passed ? 'good' : 'bad'} text={passed ? texts.yes : texts.no} />,
            },
            { name: 'time', label: texts.time, show: ({ time }) => <Time iso={time} /> },
          ]}
          empty={<p>{words.noVerifications}</p>}
        />
      )}
      {importing && !isStations && <Import onClose={() => setImporting(false)} onDone={() => {}} />}
    </Page>
  );
}

function Results({ id, onDestroy }: { id: string; onDestroy: () => void }) {
  return (
    <>
      <UnitsWarning />
      <div class="row">
        <a class="button" href={`/api/v1/provisioning/jobs/${id}/results?format=csv`} download="results.csv">
          {words.results}
        </a>
        <a class="button" href={`/api/v1/provisioning/jobs/${id}/labels?format=html`} target="_blank" rel="noreferrer">
          {words.labels}
        </a>
        <button type="button" class="danger" onClick={onDestroy}>
          {words.destroy}
        </button>
      </div>
    </>
  );
}

function isUndoable({ action, dryRun, undone }: { action: string; dryRun: boolean; undone: string | null }): boolean {
  return (action === 'delete' || action === 'move') && !dryRun && undone === null;
}

function Job({ id }: { id: string }) {
  const { data: job, error, reload } = useLoad(() => readJob(id), [id], 1500);
  const [confirming, setConfirming] = useState(false);
  if (!job) return <Waiting title={words.one} error={error} />;
  const params = { path: { id } };
  const post = (path: 'cancel' | 'retry' | 'undo') => async () => {
    await unwrap(api.POST(`/api/v1/provisioning/jobs/{id}/${path}`, { params }));
    reload();
  };
  const confirm = async () => {
    await unwrap(api.POST('/api/v1/provisioning/jobs/{id}/results/confirm', { params }));
    toast(words.destroyed);
    reload();
  };
  const isRunning = job.state === 'running' || job.state === 'pending';
  const hasResults = job.action === 'provision' && !isRunning && job.confirmed === null && !job.dryRun;
  return (
    <Page
      title={words.actions[job.action]}
      actions={
        <>
          {isRunning && can('update', 'job') && (
            <ActionButton label={texts.cancel} act={post('cancel')} kind="danger" onError={failed} />
          )}
          {!isRunning && job.failed > 0 && can('update', 'job') && (
            <ActionButton label={words.retry} act={post('retry')} onError={failed} />
          )}
          {!isRunning && isUndoable(job) && can('create', 'bulkChange') && (
            <ActionButton label={texts.undo} act={post('undo')} onError={failed} />
          )}
        </>
      }
    >
      <div class="stack">
        <section class="panel">
          <p class="row">
            <State of={job} /> {words.doneOf(job)} {job.reason}
          </p>
          {isRunning && <Progress job={job} />}
          {hasResults && <Results id={id} onDestroy={() => setConfirming(true)} />}
        </section>
        <Listing
          label={words.rows}
          on={[job.state]}
          load={async (page) => {
            const query = { page, pageSize };
            const { rows } = await unwrap(
              api.GET('/api/v1/provisioning/jobs/{id}/rows', { params: { ...params, query } }),
            );
            return { ...rows, results: rows.results?.map((row) => ({ ...row, id: String(row.row) })) ?? [] };
          }}
          columns={[
            { name: 'row', label: words.row, show: ({ row }) => row },
            {
              name: 'state',
              label: texts.devices.state,
              show: ({ state }) => <Badge kind={rowKinds[state]} text={words.rowStates[state]} />,
            },
            {
              name: 'serialNumber',
              label: texts.devices.serialNumber,
              show: ({ serialNumber, deviceId }) =>
                deviceId ? <Link href={`/devices/${deviceId}`}>{serialNumber ?? deviceId}</Link> : serialNumber,
            },
            {
              name: 'errors',
              label: texts.device.reason,
              wrap: true,
              show: ({ errors }) =>
                errors
                  .map(({ column, message }) =>
                    column && !message.startsWith(column) ? `${column}: ${message}` : message,
                  )
                  .join(' '),
            },
          ]}
          empty={<p>{texts.nothing}</p>}
        />
      </div>
      {confirming && (
        <Confirm
          title={words.destroy}
          says={words.destroySays}
          typed={words.destroyTyped}
          verb={words.destroy}
          run={confirm}
          onClose={() => setConfirming(false)}
        />
      )}
    </Page>
  );
}
