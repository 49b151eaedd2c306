/** One product: its name, its channels with their retention, and its custom fields. */
import { useMemo } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { type Changes, change, type Entity, readOne } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { EntityPart } from '../parts/entity-page.tsx';
import { Check, Form } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { Page, Waiting } from '../parts/page.tsx';
import { deletion, useVerbs, VerbButtons, type Verbs } from '../parts/verbs.tsx';
import { texts } from '../texts.ts';
import { channelsOf } from './channels.tsx';
import { customFieldsOf } from './custom-fields.tsx';

const words = texts.products;
type Product = Entity<'deviceTemplate'>;

export function Product({ id }: { id: string }) {
  const { data: product, error, reload } = useLoad(() => readOne('deviceTemplate', id), [id]);
  const { start, finish, notes, dialog } = useVerbs(reload);
  const [channels, customFields] = useMemo(() => [channelsOf(id), customFieldsOf(id)], [id]);
  if (!product) return <Waiting title={words.one} error={error} trash="products" />;
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
        <section class="panel narrow">
          <h2>{words.updates}</h2>
          <Form
            key={product.version}
            save={async (values) => finish(await put(product, { skipSameVersion: 'skipSameVersion' in values }))}
            verb={texts.save}
            of={words.updates}
            fixed={!can('update', 'deviceTemplate')}
          >
            <Check label={words.skipSameVersion} name="skipSameVersion" value="yes" checked={product.skipSameVersion} />
            <p class="hint">{words.skipSameVersionHint}</p>
          </Form>
        </section>
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
  can('delete', 'deviceTemplate') && deletion('deviceTemplate', product, words, '/products'),
];
