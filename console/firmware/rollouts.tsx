/** Rollouts: by stage, with a picture of the states; paused, resumed, cancelled, tried again. */
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { make, pageSize, readList, readOne } from '../app/entities.ts';
import { can } from '../app/session.ts';
import type { DeviceFilter } from '../devices/query.ts';
import { CloseButton, Dialog } from '../parts/dialog.tsx';
import type { EntityList } from '../parts/entity-page.tsx';
import { type FieldOf, Fields } from '../parts/fields.tsx';
import { Form, Select, type Values } from '../parts/form.tsx';
import { Listing } from '../parts/lists/listing.tsx';
import { useParam } from '../parts/lists/param.ts';
import { useLoad } from '../parts/load.ts';
import { NameOf } from '../parts/names.tsx';
import { Badge, Page, Time, Waiting } from '../parts/page.tsx';
import { useVerbs, VerbButtons, type Verbs } from '../parts/verbs.tsx';
import { texts } from '../texts.ts';
import { readPackages } from './packages.tsx';
import { deliveryKinds, deliveryStates, rolloutKinds } from './states.ts';

const words = texts.firmware;

async function readRollout(id: string) {
  const rollout = await readOne('firmwareRollout', id);
  const of = await readOne('firmwarePackage', rollout.firmwarePackageId).catch(() => undefined);
  return { ...rollout, name: of ? `${of.name} ${of.firmwareVersion}` : words.rollout };
}
type Rollout = Awaited<ReturnType<typeof readRollout>>;

export const rollouts: EntityList<Rollout> = {
  label: words.tabs.rollouts,
  kind: 'firmwareRollout',
  empty: words.noRollouts,
  every: 3000,
  newestFirst: true,
  load: async (page) => {
    const { results = [], ...rest } = await readList('firmwareRollout', page);
    return { ...rest, results: await Promise.all(results.map(({ id }) => readRollout(id))) };
  },
  href: ({ id }) => `/firmware/rollouts/${id}`,
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    { name: 'state', label: texts.devices.state, show: ({ state }) => <StateBadge state={state} /> },
    { name: 'stage', label: words.stage, show: ({ stage, stages }) => `${stage ?? 0} / ${stages.length}` },
    { name: 'counts', label: words.counts, wrap: true, show: ({ counts }) => <Bar counts={counts} /> },
    { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
  ],
  create: () =>
    can('create', 'firmwareRollout') && {
      text: words.newRollout,
      kind: 'primary',
      dialog: (finish, close) => <NewRollout onDone={() => finish()} onClose={close} />,
    },
};

function StateBadge({ state }: { state: Rollout['state'] }) {
  return <Badge kind={rolloutKinds[state]} text={words.rolloutStates[state]} />;
}

/** How many devices are in which state, as parts of a line. */
function Bar({ counts }: { counts: Rollout['counts'] }) {
  const total = deliveryStates.reduce((sum, state) => sum + counts[state], 0);
  const parts = deliveryStates.filter((state) => counts[state] > 0);
  const said = parts.map((state) => `${words.states[state]} ${counts[state].toLocaleString()}`).join(', ');
  if (total === 0) return <span class="soft">{words.noDevices}</span>;
  // A drawing, because the page takes no styles from attributes.
  return (
    <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={said}>
      <title>{said}</title>
      {parts.map((state, at) => {
        const before = parts.slice(0, at).reduce((sum, one) => sum + counts[one], 0);
        const [x, width] = [(before / total) * 100, (counts[state] / total) * 100];
        return <rect key={state} class={`part ${state}`} x={x} y="0" width={width} height="4" />;
      })}
    </svg>
  );
}

export function RolloutPage({ id }: { id: string }) {
  const { data: rollout, error, reload } = useLoad(() => readRollout(id), [id], 2000);
  const [state, setState] = useParam('state');
  const { start, notes, dialog } = useVerbs(reload);
  if (!rollout) return <Waiting title={words.rollout} error={error} />;
  const params = { path: { id } };
  const isOver = rollout.state === 'finished' || rollout.state === 'cancelled';
  return (
    <Page title={rollout.name} actions={<VerbButtons verbs={verbsOf(rollout, isOver)} start={start} />}>
      {notes}
      <div class="stack">
        <Progress rollout={rollout} isOver={isOver} />
        <div class="toolbar">
          <Select
            label={texts.devices.state}
            value={state}
            onText={setState}
            options={[['', texts.all], ...deliveryStates.map((one) => [one, words.states[one]] as const)]}
          />
        </div>
        <Listing
          label={words.counts}
          on={[state]}
          every={3000}
          newestFirst
          load={async (page) => {
            const query = { page, pageSize, ...(state && { state: state as (typeof deliveryStates)[number] }) };
            const { devices } = await unwrap(
              api.GET('/api/v1/firmware/rollouts/{id}/devices', { params: { ...params, query } }),
            );
            return { ...devices, results: devices.results?.map((one) => ({ ...one, id: one.deviceId })) ?? [] };
          }}
          columns={[
            {
              name: 'device',
              label: words.device,
              show: ({ deviceId }) => (
                <Link href={`/devices/${deviceId}/firmware`}>
                  <NameOf kind="device" id={deviceId} otherwise={<code>{deviceId}</code>} />
                </Link>
              ),
            },
            { name: 'stage', label: words.stage, show: ({ stage }) => stage },
            {
              name: 'state',
              label: texts.devices.state,
              show: ({ state }) => <Badge kind={deliveryKinds[state]} text={words.states[state]} />,
            },
            { name: 'message', label: texts.message, wrap: true, show: ({ message }) => message },
            { name: 'updated', label: texts.device.updated, show: ({ updated }) => <Time iso={updated} /> },
          ]}
          empty={<p>{words.noDevices}</p>}
        />
      </div>
      {dialog}
    </Page>
  );
}

interface Shown {
  rollout: Rollout;
  isOver: boolean;
}

function verbsOf({ id, name, state, counts }: Rollout, isOver: boolean): Verbs {
  const post = (verb: 'pause' | 'resume' | 'cancel' | 'retry') => async () => {
    await unwrap(api.POST(`/api/v1/firmware/rollouts/{id}/${verb}`, { params: { path: { id } } }));
    return { said: '' };
  };
  if (!can('update', 'firmwareRollout')) return [];
  const cancelling = { title: words.cancelOf(name), says: words.cancelSays, verb: words.cancelVerb };
  return [
    counts.failed + counts.timedOut > 0 && state !== 'cancelled' && { text: words.retry, run: post('retry') },
    state === 'running' && { text: words.pause, run: post('pause') },
    state === 'paused' && { text: words.resume, kind: 'primary', run: post('resume') },
    !isOver && { text: texts.cancel, kind: 'danger', ask: cancelling, run: post('cancel') },
  ];
}

function Progress({ rollout, isOver }: Shown) {
  return (
    <section class="panel">
      <p class="row">
        <StateBadge state={rollout.state} />
        {rollout.reason && <span>{rollout.reason}</span>}
        <span class="soft small">
          {words.started} <Time iso={rollout.startAt} />
        </span>
      </p>
      <Bar counts={rollout.counts} />
      <ul class="legend">
        {deliveryStates
          .filter((one) => rollout.counts[one] > 0)
          .map((one) => (
            <li key={one}>
              <svg class="key" viewBox="0 0 10 10" aria-hidden="true">
                <rect class={`part ${one}`} width="10" height="10" rx="2" />
              </svg>
              {words.states[one]} <b>{rollout.counts[one].toLocaleString()}</b>
            </li>
          ))}
      </ul>
      <ol class="steps">
        {rollout.stages.map(({ percent }, at) => (
          <li key={percent} aria-current={rollout.stage === at + 1 && !isOver ? 'step' : undefined}>
            {words.stageOf(at + 1, percent, Math.round((rollout.stages[at - 1]?.pauseSeconds ?? 0) / 60))}
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Devices that were chosen elsewhere: by their ids, or by a filter. */
export type RolloutTarget = { deviceIds: string[] } | { filter: DeviceFilter };

export function NewRollout({
  target,
  says,
  onClose,
  onDone,
}: {
  target?: RolloutTarget;
  says?: string;
  onClose: () => void;
  onDone: () => void;
}) {
  const { data } = useLoad(() => readPackages(1), []);
  const published = data?.results?.filter(({ state }) => state === 'published') ?? [];
  const save = async ({ firmwarePackageId = '', first = '10', pause = '0', organizationId, consent }: Values) => {
    const of = published.find(({ id }) => id === firmwarePackageId);
    const product = of ? { deviceTemplateId: of.deviceTemplateId } : {};
    const chosen =
      target && 'filter' in target
        ? { filter: { ...target.filter, ...product } }
        : (target ?? (organizationId ? { organizationId } : { filter: product }));
    const begin = { percent: Number(first), pauseSeconds: Number(pause) * 60 };
    const stages = Number(first) >= 100 ? [{ percent: 100 }] : [begin, { percent: 100 }];
    const by = consent ? ('user' as const) : ('none' as const);
    await make('firmwareRollout', { firmwarePackageId, target: chosen, stages, consent: by });
    onDone();
  };
  const options = published.map(({ id, name, firmwareVersion }) => [id, `${name} ${firmwareVersion}`] as const);
  const fields: readonly FieldOf[] = [
    { name: 'firmwarePackageId', label: words.package, options },
    !target && {
      name: 'organizationId',
      label: texts.devices.organization,
      pick: 'organization',
      none: words.allOfProduct,
    },
    { name: 'first', label: words.first, type: 'number', min: '1', max: '100' },
    { name: 'pause', label: words.pauseMinutes, type: 'number', min: '0' },
    { name: 'consent', label: words.consent, tick: 'user' },
  ];
  return (
    <Dialog title={words.newRollout} onClose={onClose}>
      {published.length === 0 ? (
        <>
          <p>{words.noPublished}</p>
          <CloseButton onClose={onClose} />
        </>
      ) : (
        <Form save={save} verb={words.start} onCancel={onClose}>
          {says && <p class="note">{says}</p>}
          <Fields of={() => fields} values={{ first: 10, pause: 60 }} />
        </Form>
      )}
    </Dialog>
  );
}
