/** Products: the device templates of the account. */
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useAction } from '../app/actions.ts';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Ago } from '../parts/ago.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Field, Form, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Page } from '../parts/page.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';

const words = texts.products;
const account = () => ({ accountId: accountId.value });

export function Products() {
  const [making, setMaking] = useState(false);
  const [round, setRound] = useState(0);
  useAction('newProduct', () => setMaking(true));
  const make = async ({ name = '' }: Values) => {
    await unwrap(api.POST('/api/v1/devices/templates', { body: { ...account(), name } }));
    toast(texts.saved);
    setMaking(false);
    setRound(round + 1);
  };
  return (
    <Page
      title={texts.places.products}
      trash="products"
      actions={
        can('create', 'deviceTemplate') && (
          <button type="button" class="primary" onClick={() => setMaking(true)}>
            {words.new}
          </button>
        )
      }
    >
      <Listing
        label={texts.places.products}
        on={[round]}
        load={async (page) =>
          (
            await unwrap(
              api.GET('/api/v1/devices/templates', {
                params: { query: { ...account(), page, pageSize, count: 'devices,online,channels' } },
              }),
            )
          ).deviceTemplates
        }
        href={({ id }) => `/products/${id}`}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          {
            name: 'devices',
            label: texts.places.devices,
            show: ({ id, deviceCount = 0 }) => (
              <Link href={`/devices?product=${id}`}>{deviceCount.toLocaleString()}</Link>
            ),
          },
          { name: 'online', label: texts.online, show: ({ onlineCount = 0 }) => onlineCount.toLocaleString() },
          { name: 'channels', label: words.channels, show: ({ channelCount = 0 }) => channelCount.toLocaleString() },
          { name: 'created', label: texts.created, show: ({ created }) => <Ago iso={created} /> },
        ]}
        every={10_000}
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
