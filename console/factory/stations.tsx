/** Stations: programs of a factory line, each with its product, its limit and its end. */
import { change, type Entity, make, readList } from '../app/entities.ts';
import { accountId, can } from '../app/session.ts';
import { NameOf } from '../parts/data/names.tsx';
import { UnitsWarning } from '../parts/dialogs/broker-warning.tsx';
import { localTime } from '../parts/formats/times.ts';
import type { Values } from '../parts/forms/form.tsx';
import { ending } from '../parts/lists/deletions.ts';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { creating, Once, type Verb } from '../parts/lists/verbs.tsx';
import { Badge, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { stationLines } from './station-lines.ts';

const words = texts.stations;
const day = 86_400_000;

export const stations: EntityList<Entity<'application'>> = {
  label: words.title,
  kind: 'application',
  empty: words.none,
  load: (page) => readList('application', page, { kind: 'station' }),
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    {
      name: 'product',
      label: texts.product,
      show: ({ deviceTemplateId }) => <NameOf kind="deviceTemplate" id={deviceTemplateId} />,
    },
    {
      name: 'made',
      label: words.made,
      show: ({ madeDevices = 0, maxDevices = 0 }) => words.madeOf(madeDevices, maxDevices),
    },
    {
      name: 'expires',
      label: texts.validUntil,
      show: ({ expiresAt }) =>
        expiresAt && Date.parse(expiresAt) < Date.now() ? (
          <Badge kind="bad" text={texts.states.expired} />
        ) : (
          <Time iso={expiresAt} />
        ),
    },
  ],
  create: () => can('create', 'application') && newStation,
  verbs: (of) => [
    can('update', 'application') && changing(of),
    can('delete', 'application') && ending('application', of),
  ],
};

/** Its product and its place are what it is: those of another are another station's. */
function changing(of: Entity<'application'>): Verb {
  const save = async ({ name, maxDevices, until }: Values) => {
    const expiresAt = until && new Date(until).toISOString();
    // What was not touched stays as exact as it is.
    const isNew = expiresAt && Date.parse(expiresAt) !== minuteOf(of.expiresAt);
    await change('application', of, { name, maxDevices: Number(maxDevices), ...(isNew && { expiresAt }) });
  };
  const values = { ...of, until: localTime(Date.parse(of.expiresAt ?? '')) };
  const fields = () => [name, max, { name: 'until', label: texts.validUntil, type: 'datetime-local', required: true }];
  return { text: texts.edit, form: { title: texts.verbOf(texts.edit, of.name), values, fields, save } };
}

const minuteOf = (iso: string | undefined) => new Date(localTime(Date.parse(iso ?? ''))).getTime();
const name = { name: 'name', label: texts.name, required: true, placeholder: words.example };
const max = { name: 'maxDevices', label: words.max, type: 'number', min: '1', required: true };

const newStation = creating(words.new, {
  values: { maxDevices: 1000, days: 30 },
  fields: () => [
    name,
    { name: 'deviceTemplateId', label: texts.product, pick: 'product' },
    { name: 'organizationId', label: texts.organization, pick: 'organization', none: texts.none },
    max,
    { name: 'days', label: words.days, type: 'number', min: '1', max: '365', required: true },
  ],
  save: async ({ name = '', deviceTemplateId, organizationId, maxDevices, days }) => {
    const expiresAt = new Date(Date.now() + Number(days) * day).toISOString();
    const limits = { deviceTemplateId, organizationId, maxDevices: Number(maxDevices), expiresAt };
    const { id, appToken } = await make('application', { name, kind: 'station', ...limits });
    const lines = stationLines(location.origin, accountId.value, { id, appToken });
    return {
      said: '',
      note: (
        <Once says={words.once} label={texts.token} text={lines}>
          <UnitsWarning />
          <p>
            <a href={`/console/station?account=${accountId.value}&app=${id}`} target="_blank" rel="noreferrer">
              {texts.station.open}
            </a>
          </p>
        </Once>
      ),
    };
  },
});
