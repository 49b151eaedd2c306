/** Products: device templates with their channels and custom fields. */
import { useState } from 'preact/hooks';
import { api, done } from '../app/api.js';
import { accountId } from '../app/session.js';
import { Dialog } from '../parts/dialog.js';
import { ErrorNote, Field, Form, Select, type Values } from '../parts/form.js';
import { Listing, pageSize } from '../parts/listing.js';
import { useLoad } from '../parts/load.js';
import { Page, Time } from '../parts/page.js';
import { toast } from '../parts/toast.js';
import { texts } from '../texts.js';

const words = texts.products;
const account = () => ({ accountId: accountId.value });

export function Products({ id }: { id: string | undefined }) {
  const [making, setMaking] = useState(false);
  const [round, setRound] = useState(0);
  if (id !== undefined) return <Product id={id} />;
  const make = async ({ name = '' }: Values) => {
    await done(api.POST('/api/v1/devices/templates', { body: { ...account(), name } }));
    toast(texts.saved);
    setMaking(false);
    setRound(round + 1);
  };
  return (
    <Page
      title={texts.places.products}
      actions={
        <button type="button" class="primary" onClick={() => setMaking(true)}>
          {words.new}
        </button>
      }
    >
      <Listing
        label={texts.places.products}
        on={[round]}
        load={async (page) =>
          (await done(api.GET('/api/v1/devices/templates', { params: { query: { ...account(), page, pageSize } } })))
            .deviceTemplates
        }
        href={({ id }) => `/products/${id}`}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
        ]}
        empty={<p>{words.none}</p>}
      />
      {making && (
        <Dialog title={words.new} onClose={() => setMaking(false)}>
          <Form save={make} verb={texts.create} onCancel={() => setMaking(false)}>
            <Field label={texts.name} name="name" required />
          </Form>
        </Dialog>
      )}
    </Page>
  );
}

function Product({ id }: { id: string }) {
  const [making, setMaking] = useState<'channel' | 'field'>();
  const [round, setRound] = useState(0);
  const { data, error } = useLoad(
    () => done(api.GET('/api/v1/devices/templates/{id}', { params: { path: { id } } })),
    [id],
  );
  if (!data) return <ErrorNote error={error} />;
  const made = () => {
    toast(texts.saved);
    setMaking(undefined);
    setRound(round + 1);
  };
  const makeChannel = async ({ name = '', persistenceType }: Values) => {
    const body = {
      ...account(),
      entityId: id,
      entityType: 'deviceTemplate',
      name,
      persistenceType: persistenceType as 'simple',
    } as const;
    await done(api.POST('/api/v1/channels/templates', { body }));
    made();
  };
  const makeField = async ({ name = '', type }: Values) => {
    const body = { ...account(), deviceTemplateId: id, name, fieldType: type as 'string' };
    await done(api.POST('/api/v1/devices/custom-fields', { body }));
    made();
  };
  return (
    <Page
      title={data.deviceTemplate.name}
      actions={
        <>
          <button type="button" onClick={() => setMaking('field')}>
            {words.newField}
          </button>
          <button type="button" class="primary" onClick={() => setMaking('channel')}>
            {words.newChannel}
          </button>
        </>
      }
    >
      <div class="stack">
        <h2>{words.channels}</h2>
        <Listing
          label={words.channels}
          on={[round]}
          load={async (page) => {
            const query = { ...account(), entityId: id, page, pageSize };
            return (await done(api.GET('/api/v1/channels/templates', { params: { query } }))).channelTemplates;
          }}
          columns={[
            { name: 'name', label: texts.name, show: ({ name }) => name },
            { name: 'kind', label: words.persistence, show: ({ persistenceType }) => persistenceType },
          ]}
          empty={<p>{words.noChannels}</p>}
        />
        <h2>{words.fields}</h2>
        <Listing
          label={words.fields}
          on={[round]}
          load={async (page) => {
            const query = { ...account(), deviceTemplateId: id, page, pageSize };
            const answer = await done(api.GET('/api/v1/devices/custom-fields', { params: { query } }));
            return answer.deviceFields;
          }}
          columns={[{ name: 'name', label: texts.name, show: ({ name }) => name }]}
          empty={<p>{words.noFields}</p>}
        />
      </div>
      {making && (
        <Dialog title={making === 'channel' ? words.newChannel : words.newField} onClose={() => setMaking(undefined)}>
          <Form
            save={making === 'channel' ? makeChannel : makeField}
            verb={texts.create}
            onCancel={() => setMaking(undefined)}
          >
            <Field label={texts.name} name="name" required />
            {making === 'channel' ? (
              <Select
                label={words.persistence}
                name="persistenceType"
                options={[
                  ['timeSeries', words.stored],
                  ['simple', words.notStored],
                ]}
              />
            ) : (
              <Select
                label={words.type}
                name="type"
                options={['string', 'text', 'int', 'float', 'boolean', 'datetime', 'email', 'url'].map(
                  (one) => [one, one] as const,
                )}
              />
            )}
          </Form>
        </Dialog>
      )}
    </Page>
  );
}
