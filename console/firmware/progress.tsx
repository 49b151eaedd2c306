/** How far a rollout has come: its devices by state, its speed and its clock, and why devices have failed. */
import { Link } from 'wouter-preact';
import type { Entity } from '../app/entities.ts';
import { ShareList } from '../parts/charts/shares.tsx';
import { NameOf } from '../parts/data/names.tsx';
import { Ago } from '../parts/formats/ago.tsx';
import type { Column } from '../parts/lists/table.tsx';
import { Panel, Stat, Time } from '../parts/page/page.tsx';
import { State } from '../parts/page/state.tsx';
import { texts } from '../texts.ts';

const words = texts.firmware;
type Rollout = Entity<'firmwareRollout'>;
/** In the order in which a device comes through them. */
export const deliveryStates = [
  'succeeded',
  'installing',
  'downloaded',
  'downloading',
  'offered',
  'pending',
  'failed',
  'timedOut',
  'superseded',
  'cancelled',
] as const;
interface Delivery {
  id: string;
  state: (typeof deliveryStates)[number];
  message: string | null;
  code: number | null;
  updated: string;
}

const sumOf = (counts: Rollout['counts'], states: readonly (typeof deliveryStates)[number][]) =>
  states.reduce((sum, state) => sum + counts[state], 0);
const endStates = ['succeeded', 'failed', 'timedOut', 'superseded', 'cancelled'] as const;

/** Of a delivery: its state, what the device has said, and when. */
export const deliveryColumns: Column<Delivery>[] = [
  { name: 'state', label: texts.state, show: ({ state }) => <State of={state} /> },
  {
    name: 'message',
    label: texts.message,
    wrap: true,
    show: ({ message, code }) => message ?? (code === null ? '' : words.code(code)),
  },
  { name: 'updated', label: texts.device.updated, show: ({ updated }) => <Time iso={updated} /> },
];

/** How many devices are in which state, as parts of a line. */
export function Bar({ counts }: { counts: Rollout['counts'] }) {
  const total = sumOf(counts, deliveryStates);
  const parts = deliveryStates.filter((state) => counts[state] > 0);
  const said = parts.map((state) => `${texts.states[state]} ${counts[state].toLocaleString()}`).join(', ');
  if (total === 0) return <span class="soft">{words.noDevices}</span>;
  // A drawing, because the page takes no styles from attributes.
  return (
    <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={said}>
      <title>{said}</title>
      {parts.map((state, at) => {
        const before = sumOf(counts, parts.slice(0, at));
        const [x, width] = [(before / total) * 100, (counts[state] / total) * 100];
        return <rect key={state} class={`part ${state}`} x={x} y="0" width={width} height="4" />;
      })}
    </svg>
  );
}

/** Whom it is for. */
function Target({ of: { organizationId, fleetId, filter, revertOf, deviceCount = 0 } }: { of: Rollout['target'] }) {
  if (revertOf !== undefined) return <Link href={`/firmware/rollouts/${revertOf}`}>{words.undone}</Link>;
  if (organizationId !== undefined)
    return (
      <>
        <NameOf kind="organization" id={organizationId} /> {words.below}
      </>
    );
  if (fleetId !== undefined) return <NameOf kind="fleet" id={fleetId} />;
  if (typeof filter === 'string') return <code>{filter}</code>;
  const { deviceTemplateId, ...others } = filter ?? {};
  if (!filter) return <>{texts.counts.devices(deviceCount)}</>;
  return (
    <>
      <NameOf kind="deviceTemplate" id={String(deviceTemplateId ?? '')} otherwise={words.allOfProduct} />{' '}
      {Object.entries(others)
        .map(([name, value]) => `${name}: ${value}`)
        .join(', ')}
    </>
  );
}

export function Progress({ of: rollout, isOver }: { of: Rollout; isOver: boolean }) {
  const { counts, target, refused, perMinute = 0, stageEndsAt, stages, stage } = rollout;
  const [ended, all] = [sumOf(counts, endStates), sumOf(counts, deliveryStates)];
  return (
    <section class="panel">
      <p class="row">
        <State of={rollout.state} />
        {rollout.reason && <span>{rollout.reason}</span>}
        <span class="soft small">
          {words.started} <Time iso={rollout.startAt} />
        </span>
        <span class="soft small">
          {words.targeted} <Target of={target} />
        </span>
      </p>
      <dl class="stats">
        <Stat label={texts.states.done}>{words.endedOf(ended, all)}</Stat>
        {!isOver && <Stat label={words.speed}>{words.perMinute(perMinute)}</Stat>}
        {stageEndsAt != null && rollout.state === 'running' && (
          <Stat label={words.nextStage}>
            <Ago iso={stageEndsAt} />
          </Stat>
        )}
      </dl>
      <Bar counts={counts} />
      <ul class="legend">
        {deliveryStates
          .filter((one) => counts[one] > 0)
          .map((one) => (
            <li key={one}>
              <svg class="key" viewBox="0 0 10 10" aria-hidden="true">
                <rect class={`part ${one}`} width="10" height="10" rx="2" />
              </svg>
              {texts.states[one]} <b>{counts[one].toLocaleString()}</b>
            </li>
          ))}
      </ul>
      <Refused of={refused} />
      <ol class="steps">
        {stages.map(({ percent }, at) => (
          <li key={percent} aria-current={stage === at + 1 && !isOver ? 'step' : undefined}>
            {words.stageOf(at + 1, percent, Math.round((stages[at - 1]?.pauseSeconds ?? 0) / 60))}
          </li>
        ))}
      </ol>
    </section>
  );
}

export const Refused = ({ of }: { of: Rollout['refused'] }) =>
  of.map(({ reason, count }) => (
    <p class="note warn" key={reason}>
      {texts.counts.devices(count)}: {reason}
    </p>
  ));

/** What devices have said, the most frequent first, with the last device that said so. */
export function Failures({ of: failures }: { of: NonNullable<Rollout['failures']> }) {
  if (failures.length === 0) return null;
  return (
    <Panel title={words.failures} kind="failures" aria-label={words.failures}>
      <ShareList
        of={failures.map(({ message, count, newest: { deviceId, serialNumber, time } }) => ({
          ...{ key: message ?? '', name: <b>{message ?? words.noMessage}</b>, count },
          says: texts.counts.devices(count),
          more: (
            <span class="small soft">
              {words.newest} <Link href={`/devices/${deviceId}/firmware`}>{serialNumber}</Link>, <Ago iso={time} />
            </span>
          ),
        }))}
      />
    </Panel>
  );
}
