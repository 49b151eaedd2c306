/** One product: its name, its channels with their retention, its custom fields, and the commands of its devices. */
import { useMemo } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { type Changes, change, type Entity, readOne } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { deletion } from '../parts/lists/deletions.ts';
import { EntityPart } from '../parts/lists/entity-page.tsx';
import { useVerbs, VerbButtons, type Verbs } from '../parts/lists/verbs.tsx';
import { Page, Waiting } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { channelsOf } from './channels.tsx';
import { commandsOf } from './commands.tsx';
import { customFieldsOf } from './custom-fields.tsx';
import { PrimaryValue, Switch } from './settings.tsx';

const words = texts.products;
type Product = Entity<'deviceTemplate'>;

export function Product({ id }: { id: string }) {
  const { data: product, error, reload } = useLoad(() => readOne('deviceTemplate', id), [id]);
  const { start, finish, notes, dialog } = useVerbs(reload);
  const [channels, customFields, commands] = useMemo(
    () => [channelsOf(id), customFieldsOf(id), commandsOf(id, reload)],
    [id],
  );
  if (!product) return <Waiting title={texts.product} error={error} trash="products" />;
  // Of its newest version: what was done on this page a moment ago may not have been read yet.
  const save = async (changes: Changes<'deviceTemplate'>) =>
    finish(await put(await readOne('deviceTemplate', id), changes));
  return (
    <Page
      title={product.name}
      actions={
        <>
          <Link class="button" href={`/devices?product=${id}`}>
            {texts.places.devices}
          </Link>
          <VerbButtons verbs={verbsOf(product)} start={start} />
        </>
      }
    >
      {notes}
      <div class="stack">
        <EntityPart of={channels} heading={words.channels} />
        <EntityPart of={customFields} heading={words.fields} />
        <EntityPart of={commands} heading={texts.commands.title} />
        <div class="grid">
          <PrimaryValue {...{ product, save }} />
          <Switch {...{ product, save }} name="commandsOnly" />
          <Switch {...{ product, save }} name="skipSameVersion" />
        </div>
      </div>
      {dialog}
    </Page>
  );
}

async function put(product: Product, changes: Changes<'deviceTemplate'>) {
  await change('deviceTemplate', product, changes);
  return {};
}

const verbsOf = (product: Product): Verbs => [
  can('update', 'deviceTemplate') && {
    text: words.rename,
    form: {
      title: words.rename,
      values: product,
      fields: () => [{ name: 'name', label: texts.name, required: true }],
      save: ({ name = '' }) => put(product, { name }),
    },
  },
  can('delete', 'deviceTemplate') && deletion('deviceTemplate', product, words.deleteSays, '/products'),
];
