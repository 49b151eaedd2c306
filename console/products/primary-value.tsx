/** The value that matters of the devices of a product: one of its declared categories, or the one that came last. */
import { type Entity, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Form, Select, type Values } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { texts } from '../texts.ts';

const words = texts.products;
/** Channels of a product at most, with the built-in ones. */
const maxChannels = 1000;
/** Milliseconds between two looks: channels are edited on the same page. */
const every = 5000;
type Product = Entity<'deviceTemplate'>;

const textOf = (channel: string, category: string) => JSON.stringify([channel, category]);

async function readOptions({ id, primary }: Product): Promise<[string, string][]> {
  const { results = [] } = await readList('channelTemplate', 1, { entityId: id, pageSize: maxChannels });
  const options = results
    .filter(({ persistenceType }) => persistenceType === 'timeSeries')
    .flatMap(({ name, categories }) =>
      categories.map((one): [string, string] => [textOf(name, one.name), `${one.label || one.name || name} (${name})`]),
    );
  // Its channel may have gone.
  const chosen = primary && textOf(primary.channel, primary.category);
  if (chosen && !options.some(([value]) => value === chosen))
    options.push([chosen, `${primary.category} (${primary.channel})`]);
  return options;
}

export function PrimaryValue({
  product,
  save,
}: {
  product: Product;
  save: (primary: Product['primary']) => Promise<void>;
}) {
  const { data } = useLoad(() => readOptions(product), [product.version], every);
  const { primary } = product;
  const saveChosen = ({ primary = '' }: Values) => {
    const [channel, category] = JSON.parse(primary || '[]') as string[];
    return save(channel === undefined || category === undefined ? null : { channel, category });
  };
  return (
    <section class="panel narrow">
      <h2>{words.matters}</h2>
      <Form
        key={product.version}
        save={saveChosen}
        verb={texts.save}
        of={words.matters}
        fixed={!can('update', 'deviceTemplate')}
      >
        <Select
          key={String(data === undefined)}
          label={words.matters}
          name="primary"
          busy={!data}
          value={primary ? textOf(primary.channel, primary.category) : ''}
          options={[['', words.cameLast], ...(data ?? [])]}
        />
        <p class="hint">{words.mattersHint}</p>
      </Form>
    </section>
  );
}
