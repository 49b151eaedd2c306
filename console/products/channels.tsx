/** The channels of a product: what they carry, how long it is kept, and who gets it. */
import { change, type Entity, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import type { FieldOf } from '../parts/forms/fields.tsx';
import type { Values } from '../parts/forms/form.tsx';
import { deletion } from '../parts/lists/deletions.ts';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { creating, type Verb } from '../parts/lists/verbs.tsx';
import { Badge } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { Categories, type Category } from './categories.tsx';

const words = texts.products;
type Channel = Entity<'channelTemplate'>;
/** From 1 on a bridge gets the messages of a channel. */
const bridged = 1;

export const channelsOf = (product: string): EntityList<Channel> => ({
  label: words.channels,
  kind: 'channelTemplate',
  trash: 'channels',
  empty: words.noChannels,
  load: (page) => readList('channelTemplate', page, { entityId: product }),
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    {
      name: 'kind',
      label: words.persistence,
      show: ({ persistenceType, serviceTopic }) => (
        <span class="row">
          {persistenceType === 'timeSeries' ? words.stored : words.notStored}
          {serviceTopic && <Badge text={texts.builtIn} />}
        </span>
      ),
    },
    { name: 'payload', label: words.payload, show: ({ payload }) => words.payloads[payload] },
    { name: 'retention', label: words.retention, show: retentionOf },
    {
      name: 'bridges',
      label: texts.programs.tabs.bridges,
      show: ({ streamBridgeDelivery }) => (streamBridgeDelivery >= bridged ? texts.yes : texts.no),
    },
  ],
  create: () => can('create', 'channelTemplate') && making(product),
  verbs: (of) => [
    can('update', 'channelTemplate') && editing(of),
    can('delete', 'channelTemplate') && !of.serviceTopic && deletion('channelTemplate', of),
  ],
});

function retentionOf({ retentionDays, persistenceType }: Channel): string {
  if (persistenceType !== 'timeSeries') return '–';
  return retentionDays === null ? words.ofAccount : words.days(retentionDays);
}

const settings = (of?: Channel): FieldOf[] => [
  { name: 'payload', label: words.payload, options: Object.entries(words.payloads) },
  { name: 'retentionDays', label: words.retentionDays, type: 'number', min: '0', hint: words.retentionHint },
  <Categories of={of?.categories ?? []} />,
  { name: 'bridge', label: words.bridge, tick: 'yes' },
];

function settingsIn({ payload, retentionDays, bridge, categories = '[]' }: Values, before = 0) {
  return {
    payload: payload as Channel['payload'],
    retentionDays: retentionDays === undefined ? null : Number(retentionDays),
    categories: JSON.parse(categories) as Category[],
    streamBridgeDelivery: bridge === undefined ? 0 : Math.max(bridged, before),
  };
}

const kinds = [
  ['timeSeries', words.stored],
  ['simple', words.notStored],
] as const;

const making = (product: string) =>
  creating(words.newChannel, {
    wide: true,
    values: { payload: 'auto' },
    fields: () => [
      { name: 'name', label: texts.name, required: true, placeholder: 'readings' },
      { name: 'persistenceType', label: words.persistence, options: kinds },
      ...settings(),
    ],
    save: async ({ name = '', persistenceType, ...values }) => {
      const of = {
        entityId: product,
        entityType: 'deviceTemplate',
        persistenceType: persistenceType as 'simple',
      } as const;
      await make('channelTemplate', { ...of, name, ...settingsIn(values) });
    },
  });

function editing(of: Channel): Verb {
  const form: Verb['form'] = {
    title: texts.verbOf(texts.edit, of.name),
    wide: true,
    values: { ...of, bridge: of.streamBridgeDelivery >= bridged ? 'yes' : null },
    fields: () => settings(of),
    save: async (values) => {
      await change('channelTemplate', of, settingsIn(values, of.streamBridgeDelivery));
    },
  };
  return { text: texts.edit, form };
}
