/** Moves, commands, regenerates or deletes devices: first a dry run that says how many, then a job. */
import { useEffect, useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { readOne } from '../app/entities.ts';
import { accountId } from '../app/session.ts';
import { CommandFields, payloadOf } from '../device/commands/command-fields.tsx';
import { Dialog } from '../parts/dialogs/dialog.tsx';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { Check, ErrorNote, Form, type Values } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { texts } from '../texts.ts';
import { type Action, type Chosen, hasBelow } from './query.ts';

const words = texts.bulk;
const canUndo: readonly Action[] = ['move', 'delete'];
/** The parameters of the job besides its devices. */
type Order = { organizationId?: string | null; keepHistory?: boolean; command?: { name: string; payload?: unknown } };
export const readJob = (id: string) => readOne('job', id);
export type Job = Awaited<ReturnType<typeof readJob>>;

/** Follows a job to its end. */
export async function finishJob(id: string, onProgress: (job: Job) => void): Promise<Job> {
  for (;;) {
    const job = await readJob(id);
    onProgress(job);
    if (job.state !== 'pending' && job.state !== 'running') return job;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

/** Plans the change, says what it would do, and does it as a job. */
export function Run({
  action,
  what,
  onClose,
  onDone,
}: {
  action: Action;
  what: Chosen;
  onClose: () => void;
  onDone: () => void;
}) {
  const [planned, setPlanned] = useState<{ job: Job; order: Order }>();
  const [running, setRunning] = useState<Job>();
  const start = async (order: Order, dryRun: boolean, onProgress: (job: Job) => void) => {
    const body = { accountId: accountId.value, action, ...what, ...order, dryRun };
    const { job } = await unwrap(api.POST('/api/v1/devices/jobs', { body }));
    return finishJob(job.id, onProgress);
  };
  const plan = async (order: Order) => {
    setPlanned({ job: await start(order, true, () => {}), order });
  };
  const run = async () => {
    const job = await start(planned?.order ?? {}, false, setRunning);
    const undo = async () => {
      const params = { path: { id: job.id } };
      const { job: undoing } = await unwrap(api.POST('/api/v1/devices/jobs/{id}/undo', { params }));
      await finishJob(undoing.id, () => {});
    };
    toast(words.finished(job), canUndo.includes(action) ? undo : undefined);
    onDone();
    onClose();
  };
  return (
    <Dialog title={words.titles[action]} onClose={onClose}>
      {planned ? (
        <>
          <p class="note warn">
            {words.would(planned.job.done)} {hasBelow(what) && `${words.withBelow} `}
            {words.ends[action]}
          </p>
          {running && <Progress job={running} />}
          <Form
            save={run}
            verb={words.verbs[action]}
            danger={action === 'regenerate' || action === 'delete'}
            begun={planned.order.command !== undefined}
            onCancel={onClose}
          />
        </>
      ) : action === 'move' ? (
        <Form
          save={({ organizationId = null, keepHistory }: { organizationId?: string | null } & Values) =>
            plan({ organizationId, ...(keepHistory && { keepHistory: true }) })
          }
          verb={words.dryRun}
          onCancel={onClose}
        >
          <Picker kind="organization" label={texts.organization} name="organizationId" none={texts.none} />
          <Check label={words.keepHistory} name="keepHistory" value="true" />
        </Form>
      ) : action === 'command' ? (
        <Form
          save={({ commandName = '', payload }: Values) =>
            plan({ command: { name: commandName, ...payloadOf(payload) } })
          }
          verb={words.dryRun}
          onCancel={onClose}
        >
          <CommandFields />
        </Form>
      ) : (
        <Plan plan={plan} />
      )}
    </Dialog>
  );
}

/** Nothing has to be asked first. */
function Plan({ plan }: { plan: (order: Order) => Promise<void> }) {
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    plan({}).catch((failure) => {
      setError(failure);
      failed(failure);
    });
  }, []);
  return error ? <ErrorNote error={error} /> : <p>{words.counting}</p>;
}

export function Progress({ job }: { job: Job }) {
  return (
    <p>
      <progress max={Math.max(1, job.total)} value={job.done + job.failed + job.skipped} aria-label={words.progress} />
      <span class="small soft">{words.progressOf(job.done + job.failed + job.skipped, job.total)}</span>
    </p>
  );
}
