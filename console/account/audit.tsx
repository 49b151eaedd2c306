/** The audit record, searched by event, outcome, who, what and when. The filters are in the address. */
import { auditEvents } from '../../src/operations/audit/events.ts';
import { api, unwrap } from '../app/api.ts';
import { readOne } from '../app/entities.ts';
import { accountId } from '../app/session.ts';
import { failed } from '../parts/dialogs/toast.tsx';
import { Field, Select } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { useParam } from '../parts/lists/param.ts';
import { Badge, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { type AuditRow, Sentence } from './sentences.tsx';

const words = texts.audit;

/** In words, those that are asked for most first. */
const eventOptions = [
  ...Object.entries(words.events),
  ...auditEvents.filter((one) => !(one in words.events)).map((one) => [one, wordsOf(one)] as const),
];

/** `keysRotated` is "Keys rotated". */
function wordsOf(event: string): string {
  const text = event.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function Audit() {
  const [event, setEvent] = useParam('event');
  const [outcome, setOutcome] = useParam('outcome');
  const [actorId, setActor] = useParam('actor');
  const [targetId, setTarget] = useParam('target');
  const [from, setFrom] = useParam('from');
  const load = async (page: number) => {
    const query = {
      accountId: accountId.value,
      page,
      pageSize,
      ...(event && { event: auditEvents.find((one) => one === event) ?? 'login' }),
      ...(outcome && { outcome: outcome === 'failure' ? ('failure' as const) : ('success' as const) }),
      ...(actorId && { actorId }),
      ...(targetId && { targetId }),
      ...(from && { from: new Date(from).toISOString() }),
    };
    return (await unwrap(api.GET('/api/v1/audit', { params: { query } }))).auditRecords;
  };
  return (
    <>
      <search class="toolbar">
        <Select label={words.event} value={event} onText={setEvent} options={[['', texts.all], ...eventOptions]} />
        <Select
          label={texts.outcome}
          value={outcome}
          onText={setOutcome}
          options={[
            ['', texts.all],
            ['success', words.outcomes.success],
            ['failure', words.outcomes.failure],
          ]}
        />
        <Picker
          kind="person"
          label={words.actor}
          value={actorId}
          none={words.anybody}
          onText={(chosen) => loginOf(chosen).then(setActor, failed)}
        />
        <Picker kind="device" label={texts.device.one} value={targetId} none={words.anything} onText={setTarget} />
        <Field label={texts.since} type="date" value={from} onText={setFrom} />
      </search>
      <Listing
        label={words.title}
        on={[event, outcome, actorId, targetId, from]}
        load={load}
        columns={auditColumns}
        empty={<p>{words.none}</p>}
      />
    </>
  );
}

/** The login of a person whom the picker has found: the record knows people by it. */
async function loginOf(chosen: string): Promise<string> {
  const [type, id = ''] = chosen.split(':');
  if (type === 'endUser') return (await readOne('endUser', id)).userId ?? '';
  return type === 'accountUser' ? (await readOne('accountUser', id)).userId : '';
}

/** The record of a device has the same columns. */
export const auditColumns = [
  { name: 'time', label: texts.time, show: ({ time }: AuditRow) => <Time iso={time} /> },
  {
    name: 'event',
    label: words.event,
    wrap: true,
    show: (row: AuditRow) => (
      <>
        <Sentence of={row} /> {row.outcome === 'failure' && <Badge kind="bad" text={words.outcomes.failure} />}
      </>
    ),
  },
  { name: 'address', label: words.address, show: ({ address }: AuditRow) => address ?? '–' },
];
