/** Stations: programs of a factory line, each with its product, its limit and its end. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { UnitsWarning } from '../parts/broker-warning.tsx';
import { Code } from '../parts/code.tsx';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { Field, Form, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { NameOf } from '../parts/names.tsx';
import { Badge, Time } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { texts } from '../texts.ts';
import { stationLines } from './station-lines.ts';

const words = texts.stations;

/** The stations of a page of applications: most accounts have a handful of either. */
async function readStations(page: number) {
  const query = { accountId: accountId.value, page, pageSize, kind: 'station' };
  return (await unwrap(api.GET('/api/v1/applications', { params: { query } }))).applications;
}
type Station = NonNullable<Awaited<ReturnType<typeof readStations>>['results']>[number];

export function Stations({ making, onClose }: { making: boolean; onClose: () => void }) {
  const [made, setMade] = useState<{ id: string; appToken: string }>();
  const [deleting, setDeleting] = useState<Station>();
  const [round, setRound] = useState(0);
  return (
    <>
      {made && (
        <div class="note warn">
          <p>{words.once}</p>
          <UnitsWarning />
          <p>
            <a href={`/console/station?account=${accountId.value}&app=${made.id}`} target="_blank" rel="noreferrer">
              {texts.station.open}
            </a>
          </p>
          <Code label={texts.programs.token} text={stationLines(location.origin, accountId.value, made)} />
        </div>
      )}
      <Listing
        label={words.title}
        on={[round]}
        load={readStations}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          {
            name: 'product',
            label: texts.devices.product,
            show: ({ deviceTemplateId }) => <NameOf kind="deviceTemplate" id={deviceTemplateId} />,
          },
          {
            name: 'made',
            label: words.made,
            show: ({ madeDevices = 0, maxDevices = 0 }) => words.madeOf(madeDevices, maxDevices),
          },
          {
            name: 'expires',
            label: words.expires,
            show: ({ expiresAt }) =>
              expiresAt && Date.parse(expiresAt) < Date.now() ? (
                <Badge kind="bad" text={words.expired} />
              ) : (
                <Time iso={expiresAt} />
              ),
          },
          {
            name: 'do',
            label: texts.actions,
            show: (one) =>
              can('delete', 'application') && (
                <button
                  type="button"
                  class="plain"
                  aria-label={texts.verbOf(texts.delete, one.name)}
                  onClick={() => setDeleting(one)}
                >
                  {texts.delete}
                </button>
              ),
          },
        ]}
        empty={<p>{words.none}</p>}
      />
      {making && (
        <NewStation
          onClose={onClose}
          onMade={(station) => {
            setMade(station);
            setRound(round + 1);
            onClose();
          }}
        />
      )}
      {deleting && (
        <Confirm
          title={texts.programs.deleteOf(deleting.name)}
          says={texts.programs.deleteSays}
          typed={deleting.name}
          verb={texts.delete}
          run={async () => {
            await unwrap(api.DELETE('/api/v1/applications/{id}', { params: { path: { id: deleting.id } } }));
            setRound(round + 1);
          }}
          onClose={() => setDeleting(undefined)}
        />
      )}
    </>
  );
}

function NewStation({
  onMade,
  onClose,
}: {
  onMade: (station: { id: string; appToken: string }) => void;
  onClose: () => void;
}) {
  const make = async ({
    name = '',
    deviceTemplateId = '',
    organizationId,
    maxDevices = '1000',
    days = '30',
  }: Values) => {
    const expiresAt = new Date(Date.now() + Number(days) * 86_400_000).toISOString();
    const limits = { deviceTemplateId, maxDevices: Number(maxDevices), expiresAt };
    const place = organizationId === undefined ? {} : { organizationId };
    const body = { accountId: accountId.value, name, kind: 'station' as const, ...limits, ...place };
    onMade((await unwrap(api.POST('/api/v1/applications', { body }))).application);
  };
  return (
    <Dialog title={words.new} onClose={onClose}>
      <Form save={make} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required placeholder={words.example} />
        <Picker kind="product" label={texts.devices.product} name="deviceTemplateId" />
        <Picker kind="organization" label={texts.devices.organization} name="organizationId" none={texts.none} />
        <Field label={words.max} name="maxDevices" type="number" min="1" defaultValue="1000" />
        <Field label={words.days} name="days" type="number" min="1" max="365" defaultValue="30" />
      </Form>
    </Dialog>
  );
}
