/** A new rollout: package, devices and stages. A preview says first what it would do. */
import { useRef, useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { type Body, make } from '../app/entities.ts';
import { accountId } from '../app/session.ts';
import { ShareList } from '../parts/charts/shares.tsx';
import { useLoad } from '../parts/data/load.ts';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { type FieldOf, Fields } from '../parts/forms/fields.tsx';
import { ActionButton, ErrorNote, Form, type Values, valuesOf } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';
import { readPublished } from './packages.tsx';
import { Refused } from './progress.tsx';

const words = texts.firmware;
/** Of more versions, only the number is told. */
const maxVersions = 5;

/** Devices that were chosen elsewhere: by their ids, or by a filter. */
export type RolloutTarget = { deviceIds: string[] } | { filter: string | { serialNumber: string } };

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
  const { data, error } = useLoad(() => readPublished(), []);
  const [seen, setSeen] = useState<Seen>({});
  const area = useRef<HTMLDivElement>(null);
  const bodyOf = (values: Values): Body<'firmwareRollout'> => {
    const { firmwarePackageId = '', first = '10', pause = '0', organizationId, consent } = values;
    const of = data?.packages.find(({ id }) => id === firmwarePackageId);
    const product = of ? { deviceTemplateId: of.deviceTemplateId } : {};
    const chosen =
      target && 'filter' in target && typeof target.filter === 'object'
        ? { filter: { ...target.filter, ...product } }
        : (target ?? (organizationId ? { organizationId } : { filter: product }));
    const begin = { percent: Number(first), pauseSeconds: Number(pause) * 60 };
    const stages = Number(first) >= 100 ? [{ percent: 100 }] : [begin, { percent: 100 }];
    const by = consent ? ('user' as const) : ('none' as const);
    return { firmwarePackageId, target: chosen, stages, consent: by };
  };
  const save = async (values: Values) => {
    await make('firmwareRollout', bodyOf(values));
    onDone();
  };
  const look = async () => {
    const form = area.current?.closest('form');
    if (!form?.reportValidity()) return;
    setSeen({ preview: await readPreview(bodyOf(valuesOf(form))) });
  };
  if (!data) return error ? <ErrorNote error={error} /> : null;
  const { options } = data;
  const fields: readonly FieldOf[] = [
    { name: 'firmwarePackageId', label: words.package, options },
    !target && {
      name: 'organizationId',
      label: texts.devices.withBelow,
      pick: 'organization',
      none: words.allOfProduct,
    },
    { name: 'first', label: words.first, type: 'number', min: '1', max: '100' },
    { name: 'pause', label: words.pauseMinutes, type: 'number', min: '0' },
    { name: 'consent', label: words.consent, tick: 'user' },
  ];
  return (
    <Dialog title={words.newRollout} onClose={onClose}>
      {options.length === 0 ? (
        <>
          <p>{words.noPublished}</p>
          <CloseButton onClose={onClose} />
        </>
      ) : (
        <Form save={save} verb={words.start} onCancel={onClose}>
          {says && <p class="note">{says}</p>}
          {/* What is changed makes the preview one of something else. */}
          <div ref={area} onInput={() => setSeen({})} onChange={() => setSeen({})}>
            <Fields of={() => fields} values={{ first: 10, pause: 60 }} />
          </div>
          <p class="gap">
            <ActionButton label={texts.preview} act={look} onError={(failure) => setSeen({ error: failure })} />
          </p>
          <div role="status">{seen.preview && <Preview of={seen.preview} />}</div>
          <ErrorNote error={seen.error} />
        </Form>
      )}
    </Dialog>
  );
}

interface Seen {
  preview?: Awaited<ReturnType<typeof readPreview>>;
  error?: unknown;
}

const readPreview = async (body: Body<'firmwareRollout'>) => {
  const all = { accountId: accountId.value, ...body };
  return (await unwrap(api.POST('/api/v1/firmware/rollouts/preview', { body: all }))).preview;
};

function Preview({ of: { devices, offline, versions, stages, refused } }: { of: NonNullable<Seen['preview']> }) {
  return (
    <section class="panel" aria-label={texts.preview}>
      <p class="figure">{texts.counts.devices(devices)}</p>
      {offline > 0 && <p class="soft">{words.offline(offline)}</p>}
      {devices > 0 && (
        <>
          <h3>{words.runsNow}</h3>
          <ShareList
            of={versions.slice(0, maxVersions).map(({ firmwareVersion, count }) => ({
              ...{ key: firmwareVersion ?? '', name: firmwareVersion ?? texts.home.noFirmware, count },
              says: texts.counts.devices(count),
            }))}
          />
          {versions.length > maxVersions && <p class="small soft">{texts.home.more(versions.length - maxVersions)}</p>}
          {stages.length > 1 && (
            <p class="gap">{stages.map((stage, at) => words.begins(at + 1, stage.devices)).join(' ')}</p>
          )}
        </>
      )}
      <Refused of={refused} />
    </section>
  );
}
