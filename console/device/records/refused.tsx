/** The last refusals of a device in words, each with what to do and a button that does it. */
import { Link } from 'wouter-preact';
import { api, unwrap } from '../../app/api.ts';
import { make, remove } from '../../app/entities.ts';
import { can } from '../../app/session.ts';
import { useLoad } from '../../parts/data/load.ts';
import { nameOf } from '../../parts/data/names.tsx';
import { failed, toast } from '../../parts/dialogs/toast.tsx';
import { Ago } from '../../parts/formats/ago.tsx';
import { ActionButton } from '../../parts/forms/form.tsx';
import { texts } from '../../texts.ts';
import type { DeviceRow, Topic } from '../row.ts';

const words = texts.refused;
/** Those of the last day are shown here; the list has all. */
const recent = 24 * 3_600_000;
const maxShown = 3;
/** The cause of what is refused because the product has no such channel. */
const noChannel = 'noChannelOfItsOwn';

const readRefusals = async (id: string) => {
  const query = { pageSize: 50 };
  return (
    (await unwrap(api.GET('/api/v1/devices/{id}/refusals', { params: { path: { id }, query } }))).refusals.results ?? []
  );
};
type Refusal = Awaited<ReturnType<typeof readRefusals>>[number];

interface Group {
  newest: Refusal;
  count: number;
}

/** Refusals of one kind are one line. Those of a channel that is there by now are no longer shown. */
function grouped(refusals: readonly Refusal[], topics: readonly Topic[]): Group[] {
  const groups = new Map<string, Group>();
  for (const one of refusals) {
    if (Date.now() - Date.parse(one.time) > recent) continue;
    if (one.cause === noChannel && topics.some(({ topic }) => topic === one.topic)) continue;
    const key = JSON.stringify([one.action, one.topic, one.reason]);
    const group = groups.get(key);
    if (group) group.count += 1;
    else groups.set(key, { newest: one, count: 1 });
  }
  return [...groups.values()];
}

/** The name of the channel that a device has published on though its product has none of this name. */
export function missingChannel({ cause, topic }: Pick<Refusal, 'cause' | 'topic'>, id: string): string | undefined {
  const [, channel] = topic?.split(`/d/${id}/`) ?? [];
  // Channels that begin with an underscore are those of the service.
  return cause === noChannel && channel && /^[^_/+#\s][^/+#\s]*$/.test(channel) ? channel : undefined;
}

/** Why it was refused, as one says it. */
export function reasonOf(refusal: Pick<Refusal, 'cause' | 'topic' | 'reason'>, id: string): string {
  const channel = missingChannel(refusal, id);
  return channel ? words.noChannel(channel, words.itsProduct) : refusal.reason;
}

export function Refused({
  device,
  topics,
  onChanged,
}: {
  device: DeviceRow;
  topics: readonly Topic[];
  onChanged: () => void;
}) {
  const { data, reload } = useLoad(() => readRefusals(device.id), [device.id], 10_000);
  const groups = grouped(data ?? [], topics);
  if (groups.length === 0) return null;
  return (
    <section class="panel alarm" aria-label={words.title}>
      <div class="row heading apart">
        <h2>{words.title}</h2>
        <Link class="small" href={`/devices/${device.id}/refusals`}>
          {words.all}
        </Link>
      </div>
      <ul class="plainlist">
        {groups.slice(0, maxShown).map((group) => (
          <Line
            key={group.newest.time}
            device={device}
            {...group}
            onChanged={() => {
              reload();
              onChanged();
            }}
          />
        ))}
      </ul>
      {groups.length > maxShown && <p class="small soft">{words.more(groups.length - maxShown)}</p>}
    </section>
  );
}

function Line({ device, newest, count, onChanged }: Group & { device: DeviceRow; onChanged: () => void }) {
  const channel = missingChannel(newest, device.id);
  const product = nameOf('deviceTemplate', device.deviceTemplateId) || words.itsProduct;
  return (
    <li class="refusal">
      <div>
        <b>{channel ? words.noChannel(channel, product) : words.was[newest.action]}</b>{' '}
        <span class="soft small">
          {words.times(count)}, <Ago iso={newest.time} />
        </span>
        <p class="small">{channel ? words.channelAdvice : `${newest.reason} ${texts.device.advice[newest.action]}`}</p>
        {!channel && newest.topic && <code class="small">{newest.topic}</code>}
      </div>
      <Remedy device={device} refusal={newest} channel={channel} product={product} onChanged={onChanged} />
    </li>
  );
}

function Remedy({
  device,
  refusal,
  channel,
  product,
  onChanged,
}: {
  device: DeviceRow;
  refusal: Refusal;
  channel: string | undefined;
  product: string;
  onChanged: () => void;
}) {
  if (channel) {
    if (!can('create', 'channelTemplate')) return null;
    return (
      <ActionButton
        label={words.createChannel(channel)}
        kind="primary"
        act={() => createChannel(device, channel, product, onChanged)}
        onError={failed}
      />
    );
  }
  const [href, label] = {
    connect: [`/devices/${device.id}/access`, words.toAccess],
    publish: [`/products/${device.deviceTemplateId}`, words.toProduct],
    subscribe: [`/devices/${device.id}/live`, words.toTopics],
  }[refusal.action];
  return (
    <Link class="button" href={href ?? ''}>
      {label}
    </Link>
  );
}

/** All devices of the product get the channel. */
async function createChannel(device: DeviceRow, name: string, product: string, onChanged: () => void): Promise<void> {
  const of = { entityId: device.deviceTemplateId, entityType: 'deviceTemplate' } as const;
  const made = await make('channelTemplate', { ...of, name, persistenceType: 'timeSeries' });
  toast(words.created(name, product), () => remove('channelTemplate', made));
  onChanged();
}
