/** Last values next to the devices of a list, read for all of them at once: what `GET /data/…/latest` tells the caller. */
import { Type } from 'typebox';
import type { LastsOfDevice, MessageStore, StoredPoint } from '../../../db/messages/store.ts';
import type { Registry } from '../../../db/registry/index.ts';
import type { Primary } from '../../../db/registry/records/templates.ts';
import { DateText, Nullable, type Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid } from '../../core/errors.ts';

const maxValues = 5;
/** Stands for the value that matters of each device. */
const primaryName = 'primary';

export const valuesQuery = {
  values: Type.Optional(
    Type.String({
      description: `Comma-separated, at most ${maxValues}: \`<channel>.<category>\`, or \`${primaryName}\`, the value that matters of each device. Of several channels that fit, the one with the longest name counts.`,
    }),
  ),
};
const Value = Type.Object(
  { value: Type.Union([Type.Number(), Type.String()]), time: DateText },
  { title: 'LastValue' },
);
export const valuesShape = Type.Optional(
  Type.Record(Type.String(), Nullable(Value), {
    description: 'With `values`: the last point of each by its name there; null without one that the caller may read.',
  }),
);
type Values = Record<string, { value: number | string; time: string } | null>;

/** The names that `values` has. @throws PlatformError 400/106 for more than five, and for what is no name. */
export function readValueNames(values: string | undefined): string[] {
  if (values === undefined) return [];
  const names = values.split(',');
  if (names.length > maxValues) throw invalid('values', `must have at most ${maxValues} names`);
  for (const name of names)
    if (name !== primaryName && namesIn(name).length === 0)
      throw invalid('values', `must be ${primaryName}, or <channel>.<category>`);
  return [...new Set(names)];
}

/** UTF-16 units of the longest name of a channel. */
const maxChannelLength = 200;

/** What a name may mean, the longest channel first: channels and categories may have dots, too. */
function namesIn(name: string): Primary[] {
  const dots = [...name.slice(0, maxChannelLength + 1).matchAll(/\./g)].map(({ index }) => index);
  return dots
    .map((at) => ({ channel: name.slice(0, at), category: name.slice(at + 1) }))
    .filter(({ channel, category }) => channel !== '' && category !== '')
    .reverse();
}

type ValueServices = { registry: Registry; access: Access; messages: MessageStore };
type WantedValues = LastsOfDevice['wanted'][number];
const nothing: WantedValues = { channels: new Set() };

/** The values of each device by its id. Names are as `readValueNames` has them. */
export async function valuesOf(
  { registry, access, messages }: ValueServices,
  caller: Caller,
  rows: readonly Row<'devices'>[],
  names: readonly string[],
): Promise<Map<string, Values>> {
  const primaries = names.includes(primaryName) ? await readPrimaries(registry, rows) : undefined;
  const read = new Map(names.map((name) => [name, namesIn(name)]));
  const asked = rows.map((row): LastsOfDevice => {
    const { id: deviceId, accountId } = row;
    const channels = access.channelsOf(row.deviceTemplateId);
    const isRead = (name: string) =>
      channels.get(name)?.persistenceType === 'timeSeries' && access.mayHear(caller, deviceId, name);
    const idsOf = (some: Iterable<string>) =>
      new Set([...some].filter(isRead).flatMap((name) => channels.get(name)?.id ?? []));
    const wanted = names.map((name): WantedValues => {
      const primary = primaries?.get(row.deviceTemplateId) ?? null;
      if (name === primaryName && primary === null) return { channels: idsOf(channels.keys()) };
      const meant = name === primaryName ? primary : read.get(name)?.find(({ channel }) => channels.has(channel));
      return meant ? { channels: idsOf([meant.channel]), category: meant.category } : nothing;
    });
    return { accountId, deviceId, window: access.historyWindowOf(caller, row), wanted };
  });
  const lasts = await messages.series.lasts(asked);
  const shown = (found: readonly (StoredPoint | undefined)[]) =>
    Object.fromEntries(names.map((name, at) => [name, showLast(found[at])]));
  return new Map(rows.map(({ id }, at) => [id, shown(lasts[at] ?? [])]));
}

function showLast(point: StoredPoint | undefined): Values[string] {
  const value = point?.numericValue ?? point?.stringValue;
  return point && value !== null && value !== undefined ? { value, time: new Date(point.time).toISOString() } : null;
}

/** The value that matters of the template of each device. */
async function readPrimaries(
  { query }: ValueServices['registry'],
  rows: readonly Row<'devices'>[],
): Promise<Map<string, Primary | null>> {
  const ids = [...new Set(rows.map(({ deviceTemplateId }) => deviceTemplateId))];
  if (ids.length === 0) return new Map();
  const found = await query.selectFrom('deviceTemplates').select(['id', 'primary']).where('id', 'in', ids).execute();
  return new Map(found.map(({ id, primary }) => [id, primary === null ? null : JSON.parse(primary)]));
}
