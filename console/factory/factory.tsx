/** Factory: jobs as they run, results to download once, labels, and verifications. */
import type { ComponentChildren } from 'preact';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { type Entity, pageSize, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Import } from '../devices/import.tsx';
import { Progress, readJob } from '../devices/run.tsx';
import { useLoad } from '../parts/data/load.ts';
import { UnitsWarning } from '../parts/dialogs/broker-warning.tsx';
import { type EntityList, EntityPage } from '../parts/lists/entity-page.tsx';
import { Listing } from '../parts/lists/listing.tsx';
import { useVerbs, type Verb, VerbButtons, type Verbs } from '../parts/lists/verbs.tsx';
import { Badge, Page, Time, Waiting } from '../parts/page/page.tsx';
import { State } from '../parts/page/state.tsx';
import { texts } from '../texts.ts';
import { stations } from './stations.tsx';

const words = texts.factory;
type Ended = Pick<Entity<'job'>, 'state' | 'done' | 'failed' | 'skipped'>;

/** A job that has come to its end is no success if a row failed, or if all were skipped. */
function JobState({ of: { state, done, failed, skipped } }: { of: Ended }) {
  if (state === 'succeeded' && failed > 0) return <Badge kind="warn" text={words.endedWithFailures} />;
  if (state === 'succeeded' && done === 0 && skipped > 0) return <Badge kind="warn" text={words.nothingDone} />;
  return <State of={state} />;
}

function nameOf({ action, command }: Pick<Entity<'job'>, 'action' | 'command'>): string {
  return command ? words.sends(command.name) : words.actions[action];
}

const jobs: EntityList<Entity<'job'>> = {
  label: words.tabs[''],
  kind: 'job',
  empty: words.none,
  every: 3000,
  newestFirst: true,
  load: (page) => readList('job', page),
  href: ({ id }) => `/factory/${id}`,
  columns: [
    { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
    {
      name: 'action',
      label: texts.action,
      show: (job) => `${nameOf(job)}${job.dryRun ? ` (${words.dryRun})` : ''}`,
    },
    { name: 'state', label: texts.state, show: (job) => <JobState of={job} /> },
    { name: 'done', label: texts.states.done, show: (job) => words.doneOf(job) },
  ],
  create: () =>
    can('create', 'job') && {
      text: words.new,
      kind: 'primary',
      dialog: (_, close) => <Import onClose={close} onDone={() => {}} />,
    },
};

const verifications: EntityList<Entity<'verification'>> = {
  label: words.tabs.verifications,
  kind: 'verification',
  empty: words.noVerifications,
  load: (page) => readList('verification', page),
  columns: [
    {
      name: 'serialNumber',
      label: texts.serialNumber,
      show: ({ serialNumber, deviceId }) => <Link href={`/devices/${deviceId}`}>{serialNumber}</Link>,
    },
    {
      name: 'passed',
      label: words.passed,
      show: ({ passed }) => <Badge kind={passed ? 'good' : 'bad'} text={passed ? texts.yes : texts.no} />,
    },
    { name: 'time', label: texts.time, show: ({ time }) => <Time iso={time} /> },
  ],
};

const lists: Record<string, EntityList> = { '': jobs, stations, verifications };

export function Factory({ id }: { id: string | undefined }) {
  if (id !== undefined && !(id in lists)) return <Job key={id} id={id} />;
  return <EntityPage title={texts.places.factory} path="/factory" tab={id} lists={lists} />;
}

function Results({ id, destroy }: { id: string; destroy: ComponentChildren }) {
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
        {destroy}
      </div>
    </>
  );
}

function isUndoable({ action, dryRun, undone }: { action: string; dryRun: boolean; undone: string | null }): boolean {
  return (action === 'delete' || action === 'move') && !dryRun && undone === null;
}

function Job({ id }: { id: string }) {
  const { data: job, error, reload } = useLoad(() => readJob(id), [id], 1500);
  const { start, notes, dialog } = useVerbs(reload);
  if (!job) return <Waiting title={words.one} error={error} />;
  const params = { path: { id } };
  const post = (path: 'cancel' | 'retry' | 'undo' | 'results/confirm', said: string) => async () => {
    await unwrap(api.POST(`/api/v1/provisioning/jobs/{id}/${path}`, { params }));
    return { said };
  };
  const isRunning = job.state === 'running' || job.state === 'pending';
  const mayChange = can('update', 'job');
  const mayUndo = !isRunning && isUndoable(job) && can('create', 'bulkChange');
  const verbs: Verbs = [
    isRunning && mayChange && { text: texts.cancel, kind: 'danger', run: post('cancel', '') },
    !isRunning && job.failed > 0 && mayChange && { text: words.retry, run: post('retry', '') },
    mayUndo && { text: texts.undo, run: post('undo', '') },
  ];
  const hasResults = job.action === 'provision' && !isRunning && job.confirmed === null && !job.dryRun;
  const ask = { title: words.destroy, says: words.destroySays, typed: words.destroyTyped };
  const destroying: Verb = { text: words.destroy, kind: 'danger', ask, run: post('results/confirm', words.destroyed) };
  return (
    <Page title={nameOf(job)} actions={<VerbButtons verbs={verbs} start={start} />}>
      {notes}
      <div class="stack">
        <section class="panel">
          <p class="row">
            <JobState of={job} /> {words.doneOf(job)} {job.reason}
          </p>
          {isRunning && <Progress job={job} />}
          {hasResults && <Results id={id} destroy={<VerbButtons verbs={[destroying]} start={start} />} />}
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
            { name: 'state', label: texts.state, show: ({ state }) => <State of={state} /> },
            {
              name: 'serialNumber',
              label: texts.serialNumber,
              show: ({ serialNumber, deviceId }) =>
                deviceId ? <Link href={`/devices/${deviceId}`}>{serialNumber ?? deviceId}</Link> : serialNumber,
            },
            {
              name: 'errors',
              label: texts.reason,
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
      {dialog}
    </Page>
  );
}
