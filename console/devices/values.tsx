/** Last values of devices as columns of their table. */
import { readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Ago } from '../parts/formats/ago.tsx';
import { readingText } from '../parts/formats/reading.ts';
import type { Column } from '../parts/lists/table.tsx';
import { texts } from '../texts.ts';
import type { Row } from './query.ts';

/** Names of values that one list takes. */
export const maxValues = 5;
export const primaryName = 'primary';
/** Channels whose categories are looked through. */
const maxChannels = 1000;

/** A category that a product declares, and what `values` calls it. */
export interface DeclaredCategory {
  product: string;
  channel: string;
  category: string;
  name: string;
  label: string;
  unit: string;
}

/** The declared categories of the stored channels of a product, or of all. */
export async function readCategories(product?: string): Promise<DeclaredCategory[]> {
  if (!can('read', 'channelTemplate')) return [];
  const fields = 'entityId,name,persistenceType,categories';
  const { results = [] } = await readList('channelTemplate', 1, {
    ...{ pageSize: maxChannels, fields },
    ...(product && { entityId: product }),
  });
  return results
    .filter(({ persistenceType }) => persistenceType === 'timeSeries')
    .flatMap(({ entityId, name: channel, categories }) =>
      categories.map(({ name: category, label, unit = '' }) => ({
        ...{ product: entityId, channel, category, name: `${channel}.${category}`, label: label || category, unit },
      })),
    );
}

/** Those that a list can be asked for: commas are between names. */
export const readSaid = async (product?: string) =>
  (await readCategories(product)).filter(({ category, name }) => category !== '' && !name.includes(','));

export function valueColumn(column: string, name: string, said: readonly DeclaredCategory[]): Column<Row> {
  const isPrimary = name === primaryName;
  const label = isPrimary ? texts.value : (said.find((one) => one.name === name)?.label ?? name);
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
