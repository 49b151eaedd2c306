/** One product: its name, its channels with their retention, and its custom fields. */
import { useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { ActionButton, Check, Field, Form, Select, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge, Page, TrashLink, Waiting } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { Categories, type Category } from './categories.tsx';

const words = texts.products;
const account = () => ({ accountId: accountId.value });
/** From 1 on a bridge gets the messages of a channel. */
const bridged = 1;

async function readChannels(id: string, page: number) {
  const query = { ...account(), entityId: id, page, pageSize };
  return (await unwrap(api.GET('/api/v1/channels/templates', { params: { query } }))).channelTemplates;
}
type Channel = NonNullable<Awaited<ReturnType<typeof readChannels>>['results']>[number];
type Open = { kind: 'name' | 'delete' | 'channel' | 'field'; channel?: Channel };

export function Product({ id }: { id: string }) {
  const [, navigate] = useLocation();
  const [open, setOpen] = useState<Open>();
  const [round, setRound] = useState(0);
  const path = { id };
  const { data, error, reload } = useLoad(
    () => unwrap(api.GET('/api/v1/devices/templates/{id}', { params: { path } })),
    [id],
  );
  if (!data) return <Waiting title={words.one} error={error} trash="products" />;
  const product = data.deviceTemplate;
  const close = () => setOpen(undefined);
  const again = () => setRound((before) => before + 1);
  const made = () => {
    toast(texts.saved);
    close();
    again();
  };
  const put = async (body: { name: string } | { skipSameVersion: boolean }) => {
    const params = { path, header: { etag: product.version } };
    await unwrap(api.PUT('/api/v1/devices/templates/{id}', { params, body }));
    reload();
    made();
  };
  const rename = ({ name = '' }: Values) => put({ name });
  const update = ({ skipSameVersion }: Values) => put({ skipSameVersion: skipSameVersion !== undefined });
  const remove = async () => {
    const params = { path, header: { etag: product.version } };
    const { deviceTemplate } = await unwrap(api.DELETE('/api/v1/devices/templates/{id}', { params }));
    const gone = { path, header: { etag: deviceTemplate.version } };
    toast(words.deleted(product.name), () =>
      unwrap(api.POST('/api/v1/trash/devices/templates/{id}/recover', { params: gone })),
    );
    navigate('/products');
  };
  return (
    <Page
      title={product.name}
      actions={
        <>
          <Link class="button" href={`/devices?product=${id}`}>
            {texts.places.devices}
          </Link>
          {can('update', 'deviceTemplate') && (
            <button type="button" onClick={() => setOpen({ kind: 'name' })}>
              {words.rename}
            </button>
          )}
          {can('delete', 'deviceTemplate') && (
            <button type="button" class="danger" onClick={() => setOpen({ kind: 'delete' })}>
              {texts.delete}
            </button>
          )}
        </>
      }
    >
      <div class="stack">
        <Channels id={id} round={round} onOpen={setOpen} onChanged={again} />
        <CustomFields id={id} round={round} onOpen={setOpen} onChanged={again} />
        <section class="panel narrow">
          <h2>{words.updates}</h2>
          <Form
            key={product.version}
            save={update}
            verb={texts.save}
            of={words.updates}
            fixed={!can('update', 'deviceTemplate')}
          >
            <Check label={words.skipSameVersion} name="skipSameVersion" value="yes" checked={product.skipSameVersion} />
            <p class="hint">{words.skipSameVersionHint}</p>
          </Form>
        </section>
      </div>
      {open?.kind === 'name' && (
        <Dialog title={words.rename} onClose={close}>
          <Form save={rename} verb={texts.save} onCancel={close}>
            <Field label={texts.name} name="name" required defaultValue={product.name} />
          </Form>
        </Dialog>
      )}
      {open?.kind === 'delete' && (
        <Confirm
          title={words.deleteOf(product.name)}
          says={words.deleteSays}
          verb={texts.delete}
          run={remove}
          onClose={close}
        />
      )}
      {open?.kind === 'channel' && <ChannelDialog id={id} channel={open.channel} onClose={close} onDone={made} />}
      {open?.kind === 'field' && <FieldDialog id={id} onClose={close} onDone={made} />}
    </Page>
  );
}

interface PartProps {
  id: string;
  round: number;
  onOpen: (open: Open) => void;
  onChanged: () => void;
}

function Channels({ id, round, onOpen, onChanged }: PartProps) {
  const remove = async ({ id, version, name }: Channel) => {
    const params = { path: { id }, header: { etag: version } };
    const { channelTemplate } = await unwrap(api.DELETE('/api/v1/channels/templates/{id}', { params }));
    onChanged();
    const gone = { path: { id }, header: { etag: channelTemplate.version } };
    toast(words.deleted(name), () =>
      unwrap(api.POST('/api/v1/trash/channels/templates/{id}/recover', { params: gone })),
    );
  };
  return (
    <section>
      <div class="head">
        <h2>{words.channels}</h2>
        <div class="row">
          {can('create', 'channelTemplate') && (
            <button type="button" onClick={() => onOpen({ kind: 'channel' })}>
              {words.newChannel}
            </button>
          )}
          <TrashLink of="channels" />
        </div>
      </div>
      <Listing
        label={words.channels}
        on={[round]}
        load={(page) => readChannels(id, page)}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          {
            name: 'kind',
            label: words.persistence,
            show: ({ persistenceType, serviceTopic }) => (
              <span class="row">
                {persistenceType === 'timeSeries' ? words.stored : words.notStored}
                {serviceTopic && <Badge text={words.service} />}
              </span>
            ),
          },
          { name: 'payload', label: words.payload, show: ({ payload }) => words.payloads[payload] },
          {
            name: 'retention',
            label: words.retention,
            show: ({ retentionDays, persistenceType }) =>
              persistenceType !== 'timeSeries'
                ? '–'
                : retentionDays === null
                  ? words.ofAccount
                  : words.days(retentionDays),
          },
          {
            name: 'bridges',
            label: texts.programs.tabs.bridges,
            show: ({ streamBridgeDelivery }) => (streamBridgeDelivery >= bridged ? texts.yes : texts.no),
          },
          {
            name: 'do',
            label: texts.actions,
            show: (channel) => (
              <span class="row">
                {can('update', 'channelTemplate') && (
                  <button
                    type="button"
                    class="plain"
                    aria-label={texts.verbOf(texts.edit, channel.name)}
                    onClick={() => onOpen({ kind: 'channel', channel })}
                  >
                    {texts.edit}
                  </button>
                )}
                {can('delete', 'channelTemplate') && !channel.serviceTopic && (
                  <ActionButton
                    label={texts.delete}
                    of={channel.name}
                    act={() => remove(channel)}
                    onError={failed}
                    kind="plain"
                  />
                )}
              </span>
            ),
          },
        ]}
        empty={<p>{words.noChannels}</p>}
      />
    </section>
  );
}

function ChannelDialog({
  id,
  channel,
  onClose,
  onDone,
}: {
  id: string;
  channel: Channel | undefined;
  onClose: () => void;
  onDone: () => void;
}) {
  const save = async ({ name = '', persistenceType, payload, retentionDays, bridge, categories }: Values) => {
    const settings = {
      retentionDays: retentionDays === undefined ? null : Number(retentionDays),
      payload: payload as Channel['payload'],
      categories: JSON.parse(categories ?? '[]') as Category[],
      streamBridgeDelivery: bridge === undefined ? 0 : Math.max(bridged, channel?.streamBridgeDelivery ?? 0),
    };
    if (channel) {
      const params = { path: { id: channel.id }, header: { etag: channel.version } };
      await unwrap(api.PUT('/api/v1/channels/templates/{id}', { params, body: settings }));
    } else {
      const of = { ...account(), entityId: id, entityType: 'deviceTemplate' as const };
      const kind = persistenceType === 'simple' ? ('simple' as const) : ('timeSeries' as const);
      const body = { ...of, ...settings, name, persistenceType: kind };
      await unwrap(api.POST('/api/v1/channels/templates', { body }));
    }
    onDone();
  };
  return (
    <Dialog title={channel ? words.editOf(channel.name) : words.newChannel} onClose={onClose} wide>
      <Form save={save} verb={channel ? texts.save : texts.create} onCancel={onClose}>
        {!channel && (
          <>
            <Field label={texts.name} name="name" required placeholder="readings" />
            <Select
              label={words.persistence}
              name="persistenceType"
              options={[
                ['timeSeries', words.stored],
                ['simple', words.notStored],
              ]}
            />
          </>
        )}
        <Select
          label={words.payload}
          name="payload"
          value={channel?.payload ?? 'auto'}
          options={Object.entries(words.payloads)}
        />
        <Field
          label={words.retentionDays}
          name="retentionDays"
          type="number"
          min="0"
          defaultValue={channel?.retentionDays ?? ''}
          hint={words.retentionHint}
        />
        <Categories of={channel?.categories ?? []} />
        <Check label={words.bridge} name="bridge" value="yes" checked={(channel?.streamBridgeDelivery ?? 0) > 0} />
      </Form>
    </Dialog>
  );
}

function CustomFields({ id, round, onOpen, onChanged }: PartProps) {
  const remove = async ({ id, version, name }: { id: string; version: string; name: string }) => {
    const params = { path: { id }, header: { etag: version } };
    const { deviceField } = await unwrap(api.DELETE('/api/v1/devices/custom-fields/{id}', { params }));
    onChanged();
    const gone = { path: { id }, header: { etag: deviceField.version } };
    toast(words.deleted(name), () =>
      unwrap(api.POST('/api/v1/trash/devices/custom-fields/{id}/recover', { params: gone })),
    );
  };
  return (
    <section>
      <div class="head">
        <h2>{words.fields}</h2>
        <div class="row">
          {can('create', 'customField') && (
            <button type="button" onClick={() => onOpen({ kind: 'field' })}>
              {words.newField}
            </button>
          )}
          <TrashLink of="fields" />
        </div>
      </div>
      <Listing
        label={words.fields}
        param="fields"
        on={[round]}
        load={async (page) => {
          const query = { ...account(), deviceTemplateId: id, page, pageSize };
          return (await unwrap(api.GET('/api/v1/devices/custom-fields', { params: { query } }))).deviceFields;
        }}
        columns={[
          { name: 'name', label: texts.name, show: ({ name }) => name },
          { name: 'type', label: words.type, show: ({ fieldType }) => fieldType },
          { name: 'required', label: words.required, show: ({ required }) => (required ? texts.yes : texts.no) },
          { name: 'description', label: words.description, wrap: true, show: ({ description }) => description ?? '–' },
          {
            name: 'do',
            label: texts.actions,
            show: (field) =>
              can('delete', 'customField') && (
                <ActionButton
                  label={texts.delete}
                  of={field.name}
                  act={() => remove(field)}
                  onError={failed}
                  kind="plain"
                />
              ),
          },
        ]}
        empty={<p>{words.noFields}</p>}
      />
    </section>
  );
}

const fieldTypes = [
  'string',
  'text',
  'int',
  'float',
  'boolean',
  'datetime',
  'email',
  'url',
  'name',
  'lat',
  'long',
] as const;

function FieldDialog({ id, onClose, onDone }: { id: string; onClose: () => void; onDone: () => void }) {
  const save = async ({ name = '', type, description, required }: Values) => {
    const fieldType = fieldTypes.find((one) => one === type) ?? 'string';
    const more = { ...(description && { description }), required: required !== undefined };
    const body = { ...account(), deviceTemplateId: id, name, fieldType, ...more };
    await unwrap(api.POST('/api/v1/devices/custom-fields', { body }));
    onDone();
  };
  return (
    <Dialog title={words.newField} onClose={onClose}>
      <Form save={save} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required />
        <Select label={words.type} name="type" options={fieldTypes.map((one) => [one, one] as const)} />
        <Field label={words.description} name="description" />
        <Check label={words.requiredHint} name="required" value="yes" />
      </Form>
    </Dialog>
  );
}
