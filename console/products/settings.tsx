/** Settings of a product, each with a form of its own. */
import type { ComponentChildren } from 'preact';
import type { Changes, Entity } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { readCategories } from '../devices/values.tsx';
import { useLoad } from '../parts/data/load.ts';
import { Check, Form, Select, type Values } from '../parts/forms/form.tsx';
import { Panel } from '../parts/page/shown.tsx';
import { texts } from '../texts.ts';

const words = texts.products;
/** Milliseconds between two looks: channels are edited on the same page. */
const every = 5000;
type Product = Entity<'deviceTemplate'>;

const textOf = (channel: string, category: string) => JSON.stringify([channel, category]);

async function readOptions({ id, primary }: Product): Promise<[string, string][]> {
  const options = (await readCategories(id)).map(({ channel, category, label }): [string, string] => [
    textOf(channel, category),
    `${label || channel} (${channel})`,
  ]);
  // Its channel may have gone.
  const chosen = primary && textOf(primary.channel, primary.category);
  if (chosen && !options.some(([value]) => value === chosen))
    options.push([chosen, `${primary.category} (${primary.channel})`]);
  return options;
}

interface Setting {
  title: string;
  /** What is set, by which the form begins anew: other changes of the product leave what is chosen here. */
  now: unknown;
  save: (values: Values) => Promise<unknown>;
  children: ComponentChildren;
}

interface Props {
  product: Product;
  save: (changes: Changes<'deviceTemplate'>) => Promise<void>;
}

function Setting({ title, now, save, children }: Setting) {
  return (
    <Panel title={title} kind="narrow">
      <Form
        key={JSON.stringify(now)}
        {...{ save }}
        verb={texts.save}
        of={title}
        fixed={!can('update', 'deviceTemplate')}
      >
        {children}
      </Form>
    </Panel>
  );
}

/** Something that a product does or does not. */
export function Switch({ product, save, name }: Props & { name: 'skipSameVersion' | 'commandsOnly' }) {
  const { title, label, hint } = words.settings[name];
  return (
    <Setting title={title} now={product[name]} save={(values) => save({ [name]: name in values })}>
      <Check label={label} name={name} value="yes" checked={product[name]} hint={hint} />
    </Setting>
  );
}

/** The value that matters of its devices: one of its declared categories, or the one that came last. */
export function PrimaryValue({ product, save }: Props) {
  const { data } = useLoad(() => readOptions(product), [product.version], every);
  const { primary } = product;
  const saveChosen = ({ primary = '' }: Values) => {
    const [channel, category] = JSON.parse(primary || '[]') as string[];
    return save({ primary: channel === undefined || category === undefined ? null : { channel, category } });
  };
  return (
    <Setting title={words.matters} now={primary} save={saveChosen}>
      <Select
        key={String(data === undefined)}
        label={words.matters}
        name="primary"
        busy={!data}
        value={primary ? textOf(primary.channel, primary.category) : ''}
        options={[['', words.cameLast], ...(data ?? [])]}
        hint={words.mattersHint}
      />
    </Setting>
  );
}
