/** Fleets: filters of devices under a name. They are not counted in the list: that may take seconds for each. */
import { type Entity, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { written } from '../devices/filter/bar.tsx';
import { type EntityList, EntityPage } from '../parts/lists/entity-page.tsx';
import { Badge } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { newFleet, Owner, verbsOf } from './verbs.tsx';

const words = texts.fleets;

const fleets: EntityList<Entity<'fleet'>> = {
  label: texts.places.fleets,
  kind: 'fleet',
  trash: 'fleets',
  empty: words.none,
  load: (page) => readList('fleet', page),
  href: ({ id }) => `/fleets/${id}`,
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    { name: 'description', label: texts.description, wrap: true, show: ({ description }) => description ?? '–' },
    {
      name: 'filter',
      label: words.filter,
      wrap: true,
      show: ({ filter, problem }) => (
        <>
          <code>{written(filter)}</code> {problem !== null && <Badge kind="bad" text={problem} />}
        </>
      ),
    },
    { name: 'owner', label: words.of, show: (of) => <Owner of={of} /> },
  ],
  create: () => can('create', 'fleet') && newFleet,
  verbs: (of) => verbsOf(of),
};

export function Fleets() {
  return <EntityPage title={texts.places.fleets} path="/fleets" lists={{ '': fleets }} />;
}
