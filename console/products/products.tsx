/** Products: the device templates of the account. */
import { Link } from 'wouter-preact';
import { type Entity, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Ago } from '../parts/formats/ago.tsx';
import { type EntityList, EntityPage } from '../parts/lists/entity-page.tsx';
import { creating } from '../parts/lists/verbs.tsx';
import { texts } from '../texts.ts';

const words = texts.products;

const products: EntityList<Entity<'deviceTemplate'>> = {
  label: texts.places.products,
  kind: 'deviceTemplate',
  trash: 'products',
  empty: words.none,
  every: 10_000,
  load: (page) => readList('deviceTemplate', page, { count: 'devices,online,channels' }),
  href: ({ id }) => `/products/${id}`,
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    {
      name: 'devices',
      label: texts.places.devices,
      show: ({ id, deviceCount = 0 }) => <Link href={`/devices?product=${id}`}>{deviceCount.toLocaleString()}</Link>,
    },
    { name: 'online', label: texts.online, show: ({ onlineCount = 0 }) => onlineCount.toLocaleString() },
    { name: 'channels', label: words.channels, show: ({ channelCount = 0 }) => channelCount.toLocaleString() },
    { name: 'created', label: texts.created, show: ({ created }) => <Ago iso={created} /> },
  ],
  create: () => can('create', 'deviceTemplate') && newProduct,
};

const newProduct = creating(words.new, {
  fields: () => [{ name: 'name', label: texts.name, required: true }],
  save: async ({ name = '' }) => {
    await make('deviceTemplate', { name });
  },
});

export function Products() {
  return <EntityPage title={texts.places.products} path="/products" lists={{ '': products }} />;
}
