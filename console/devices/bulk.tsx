/** What can be done to the devices that are selected, or that match the filters. */
import { Suspense } from 'preact/compat';
import { useState } from 'preact/hooks';
import { place } from '../app/place.ts';
import { can } from '../app/session.ts';
import { toast } from '../parts/dialogs/toast.tsx';
import { Button } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';
import { type Action, actions, type Chosen, type DeviceFilter, hasBelow, selectionOf } from './query.ts';

const NewRollout = place(async () => (await import('../firmware/new-rollout.tsx')).NewRollout);
export const Run = place(async () => (await import('./run.tsx')).Run);

const words = texts.bulk;

export function Bulk({
  selected,
  filter,
  count,
  onDone,
}: {
  selected: ReadonlySet<string>;
  filter: DeviceFilter | undefined;
  count: number;
  onDone: () => void;
}) {
  const [action, setAction] = useState<Action>();
  const [rolling, setRolling] = useState(false);
  const isChosen = selected.size > 0;
  const matching = filter && selectionOf(filter);
  if (!isChosen && !matching) return <p class="soft small">{filter ? words.starHint : words.hint}</p>;
  const what: Chosen = isChosen || !matching ? { ids: [...selected] } : { filter: matching };
  const says = [words.would(isChosen ? selected.size : count), hasBelow(what) && words.withBelow];
  return (
    <div class="row note">
      <span>{isChosen ? words.selected(selected.size) : words.matching(count)}</span>
      {actions.filter(mayRun).map((one) => (
        <Button
          label={words.verbs[one]}
          key={one}
          class={one === 'delete' ? 'danger' : undefined}
          onClick={() => setAction(one)}
        />
      ))}
      {can('create', 'firmwareRollout') && <Button label={words.rollout} onClick={() => setRolling(true)} />}
      {rolling && (
        <Suspense fallback={null}>
          <NewRollout
            target={'ids' in what ? { deviceIds: what.ids } : what}
            says={says.filter(Boolean).join(' ')}
            onClose={() => setRolling(false)}
            onDone={() => {
              setRolling(false);
              toast(words.rolloutStarted);
            }}
          />
        </Suspense>
      )}
      {action && (
        <Suspense fallback={null}>
          <Run action={action} what={what} onClose={() => setAction(undefined)} onDone={onDone} />
        </Suspense>
      )}
    </div>
  );
}

/** What each needs for every device, besides the right to change many. */
function mayRun(action: Action): boolean {
  if (action === 'delete') return can('delete', 'device');
  if (action === 'move') return can('update', 'device');
  if (action === 'regenerate') return can('create', 'mqttCredential') && can('publish', 'device');
  return can('create', 'command');
}
