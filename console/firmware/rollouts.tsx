/** Rollouts: by stage, with a picture of the states; paused, resumed, cancelled, tried again, undone. */
import { api, unwrap } from '../app/api.ts';
import { pageSize, readList, readOne } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { NameLink } from '../parts/data/names.tsx';
import { Select } from '../parts/forms/form.tsx';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { Listing } from '../parts/lists/listing.tsx';
import { useParam } from '../parts/lists/param.ts';
import { useVerbs, VerbButtons, type Verbs } from '../parts/lists/verbs.tsx';
import { Page, Time, Waiting } from '../parts/page/page.tsx';
import { State } from '../parts/page/state.tsx';
import { texts } from '../texts.ts';
import { NewRollout } from './new-rollout.tsx';
import { Bar, deliveryColumns, deliveryStates, Failures, Progress } from './progress.tsx';

const words = texts.firmware;

/** With the names of their packages, each of which is read once. */
async function named<T extends { firmwarePackageId: string; target: { revertOf?: string } }>(some: readonly T[]) {
  const ids = [...new Set(some.map(({ firmwarePackageId }) => firmwarePackageId))];
  const packages = await Promise.all(ids.map((id) => readOne('firmwarePackage', id).catch(() => undefined)));
  return some.map((one) => {
    const of = packages[ids.indexOf(one.firmwarePackageId)];
    const name = of ? `${of.name} ${of.firmwareVersion}` : words.rollout;
    return { ...one, name: one.target.revertOf === undefined ? name : words.backTo(name) };
  });
}

async function readRollout(id: string) {
  const [rollout] = await named([await readOne('firmwareRollout', id)]);
  if (!rollout) throw new Error(words.noDevices);
  return rollout;
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
    return { ...rest, results: await named(results) };
  },
  href: ({ id }) => `/firmware/rollouts/${id}`,
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    { name: 'state', label: texts.state, show: ({ state }) => <State of={state} /> },
    { name: 'stage', label: words.stage, show: ({ stage, stages }) => `${stage ?? 0} / ${stages.length}` },
    { name: 'counts', label: texts.places.devices, wrap: true, show: ({ counts }) => <Bar counts={counts} /> },
    { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
  ],
  create: () =>
    can('create', 'firmwareRollout') && {
      text: words.newRollout,
      kind: 'primary',
      dialog: (finish, close) => <NewRollout onDone={() => finish()} onClose={close} />,
    },
};

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
        <div class="grid">
          <Progress of={rollout} isOver={isOver} />
          <Failures of={rollout.failures ?? []} />
        </div>
        <div class="toolbar">
          <Select
            label={texts.state}
            value={state}
            onText={setState}
            options={[['', texts.all], ...deliveryStates.map((one) => [one, texts.states[one]] as const)]}
          />
        </div>
        <Listing
          label={texts.places.devices}
          on={[state]}
          every={3000}
          newestFirst
          load={async (page) => {
            const filter = state && { state: state as (typeof deliveryStates)[number] };
            const query = { page, pageSize, sort: 'failedFirst' as const, ...filter };
            const { devices } = await unwrap(
              api.GET('/api/v1/firmware/rollouts/{id}/devices', { params: { ...params, query } }),
            );
            return { ...devices, results: devices.results?.map((one) => ({ ...one, id: one.deviceId })) ?? [] };
          }}
          columns={[
            {
              name: 'device',
              label: texts.device.one,
              show: ({ deviceId }) => <NameLink kind="device" id={deviceId} part="/firmware" />,
            },
            { name: 'stage', label: words.stage, show: ({ stage }) => stage },
            ...deliveryColumns,
          ]}
          empty={<p>{words.noDevices}</p>}
        />
      </div>
      {dialog}
    </Page>
  );
}

function verbsOf({ id, name, state, counts }: Rollout, isOver: boolean): Verbs {
  const post = (verb: 'pause' | 'resume' | 'cancel' | 'retry') => async () => {
    await unwrap(api.POST(`/api/v1/firmware/rollouts/{id}/${verb}`, { params: { path: { id } } }));
    return { said: '' };
  };
  const mayChange = can('update', 'firmwareRollout');
  const goBack = async () => {
    const { firmwareRollout: back } = await unwrap(
      api.POST('/api/v1/firmware/rollouts/{id}/revert', { params: { path: { id } } }),
    );
    const undo = () => unwrap(api.POST('/api/v1/firmware/rollouts/{id}/cancel', { params: { path: { id: back.id } } }));
    return { said: words.goesBack, undo, to: `/firmware/rollouts/${back.id}` };
  };
  const cancelling = { title: words.cancelOf(name), says: words.cancelSays, verb: words.cancelVerb };
  return [
    mayChange &&
      counts.failed + counts.timedOut > 0 &&
      state !== 'cancelled' && { text: words.retry, run: post('retry') },
    mayChange && state === 'running' && { text: words.pause, run: post('pause') },
    mayChange && state === 'paused' && { text: words.resume, kind: 'primary', run: post('resume') },
    // It cancels what has not ended.
    can('create', 'firmwareRollout') &&
      (mayChange || isOver) &&
      counts.succeeded > 0 && { text: words.goBack, run: goBack },
    mayChange && !isOver && { text: texts.cancel, kind: 'danger', ask: cancelling, run: post('cancel') },
  ];
}
