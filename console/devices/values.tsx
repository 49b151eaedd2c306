/** Last values of devices as columns of their table. */
import { readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Ago } from '../parts/ago.tsx';
import type { Column } from '../parts/lists/table.tsx';
import { readingText } from '../parts/reading.ts';
import { texts } from '../texts.ts';
import type { Row } from './query.ts';

/** Names of values that one list takes. */
export const maxValues = 5;
export const primaryName = 'primary';
/** Channels whose categories are looked through. */
const maxChannels = 1000;

/** A category that a product declares, and what `values` calls it. */
export interface Said {
  product: string;
  channel: string;
  category: string;
  name: string;
  label: string;
  unit: string;
}

/** The declared categories of the stored channels of a product, or of all. */
export async function readSaid(product?: string): Promise<Said[]> {
  if (!can('read', 'channelTemplate')) return [];
  const fields = 'entityId,name,persistenceType,categories';
  const { results = [] } = await readList('channelTemplate', 1, {
    ...{ pageSize: maxChannels, fields },
    ...(product && { entityId: product }),
  });
  return results.flatMap(({ entityId, name: channel, persistenceType, categories }) =>
    categories.flatMap(({ name: category, label, unit = '' }) => {
      const name = `${channel}.${category}`;
      // Commas are between names.
      if (persistenceType !== 'timeSeries' || category === '' || name.includes(',')) return [];
      return { product: entityId, channel, category, name, label: label || category, unit };
    }),
  );
}

export function valueColumn(column: string, name: string, said: readonly Said[]): Column<Row> {
  const isPrimary = name === primaryName;
  const label = isPrimary ? texts.devices.primaryValue : (said.find((one) => one.name === name)?.label ?? name);
  const show = ({ values, deviceTemplateId, deviceTemplate }: Row) => {
    const found = values?.[name];
    if (!found) return '–';
    const { channel, category } = deviceTemplate?.primary ?? {};
    const wanted = isPrimary ? `${channel}.${category}` : name;
    const unit = said.find((one) => one.product === deviceTemplateId && one.name === wanted)?.unit;
    return (
      <>
        {readingText(found.value, unit)}{' '}
        <span class="soft small">
          <Ago iso={found.time} />
        </span>
      </>
    );
  };
  return { name: column, label, show };
}
