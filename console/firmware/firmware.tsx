/** Firmware: packages with their files, and rollouts by stage. */
import { useState } from 'preact/hooks';
import { api, done } from '../app/api.js';
import { accountId } from '../app/session.js';
import { Dialog } from '../parts/dialog.js';
import { Act, Field, Form, Select, type Values } from '../parts/form.js';
import { Listing, pageSize } from '../parts/listing.js';
import { useLoad } from '../parts/load.js';
import { Badge, Page, Tabs, Time } from '../parts/page.js';
import { Picker } from '../parts/picker.js';
import { failed, toast } from '../parts/toast.js';
import { texts } from '../texts.js';

const words = texts.firmware;

async function readPackages(page: number) {
  const query = { accountId: accountId.value, page, pageSize };
  return (await done(api.GET('/api/v1/firmware/packages', { params: { query } }))).firmwarePackages;
}
type Package = NonNullable<Awaited<ReturnType<typeof readPackages>>['results']>[number];

export function Firmware({ tab }: { tab: string }) {
  const [open, setOpen] = useState<'package' | 'rollout'>();
  const [uploading, setUploading] = useState<Package>();
  const [round, setRound] = useState(0);
  const again = () => {
    setOpen(undefined);
    setUploading(undefined);
    setRound((before) => before + 1);
  };
  const publish = async ({ id, version }: Package) => {
    await done(
      api.POST('/api/v1/firmware/packages/{id}/publish', { params: { path: { id }, header: { etag: version } } }),
    );
    again();
  };
  const control = async (id: string, verb: 'pause' | 'resume' | 'cancel') => {
    await done(api.POST(`/api/v1/firmware/rollouts/{id}/${verb}`, { params: { path: { id } } }));
    again();
  };
  return (
    <Page
      title={texts.places.firmware}
      actions={
        <button type="button" class="primary" onClick={() => setOpen(tab === '' ? 'package' : 'rollout')}>
          {tab === '' ? words.newPackage : words.newRollout}
        </button>
      }
    >
      <Tabs base="/firmware" current={tab} tabs={Object.entries(words.tabs)} />
      {tab === '' ? (
        <Listing
          label={words.tabs['']}
          on={[round]}
          load={readPackages}
          columns={[
            { name: 'name', label: texts.name, show: ({ name }) => name },
            { name: 'version', label: words.version, show: ({ firmwareVersion }) => firmwareVersion },
            {
              name: 'state',
              label: texts.devices.state,
              show: ({ state }) => <Badge kind={state === 'published' ? 'good' : undefined} text={state} />,
            },
            {
              name: 'files',
              label: words.files,
              show: ({ files }) =>
                files.map(({ name, size }) => `${name} (${size.toLocaleString()} B)`).join(', ') || '–',
            },
            {
              name: 'do',
              label: texts.actions,
              show: (one) =>
                one.state === 'draft' && (
                  <span class="row">
                    <button type="button" onClick={() => setUploading(one)}>
                      {words.upload}
                    </button>
                    <Act label={words.publish} act={() => publish(one)} onError={failed} />
                  </span>
                ),
            },
          ]}
          empty={<p>{words.noPackages}</p>}
        />
      ) : (
        <Listing
          label={words.tabs.rollouts}
          on={[round]}
          every={3000}
          load={async (page) => {
            const query = { accountId: accountId.value, page, pageSize };
            return (await done(api.GET('/api/v1/firmware/rollouts', { params: { query } }))).firmwareRollouts;
          }}
          columns={[
            { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
            {
              name: 'state',
              label: texts.devices.state,
              show: ({ state }) => (
                <Badge kind={state === 'finished' ? 'good' : state === 'paused' ? 'warn' : undefined} text={state} />
              ),
            },
            {
              name: 'stage',
              label: words.stage,
              show: ({ stage, stages }) => `${(stage ?? -1) + 1} / ${stages.length}`,
            },
            { name: 'counts', label: words.counts, wrap: true, show: ({ id }) => <Counts id={id} round={round} /> },
            {
              name: 'do',
              label: texts.actions,
              show: ({ id, state }) => (
                <span class="row">
                  {state === 'running' && <Act label={words.pause} act={() => control(id, 'pause')} onError={failed} />}
                  {state === 'paused' && (
                    <Act label={words.resume} act={() => control(id, 'resume')} onError={failed} />
                  )}
                  {state !== 'finished' && state !== 'cancelled' && (
                    <Act label={texts.cancel} kind="danger" act={() => control(id, 'cancel')} onError={failed} />
                  )}
                </span>
              ),
            },
          ]}
          empty={<p>{words.noRollouts}</p>}
        />
      )}
      {open === 'package' && <NewPackage onClose={() => setOpen(undefined)} onDone={again} />}
      {open === 'rollout' && <NewRollout onClose={() => setOpen(undefined)} onDone={again} />}
      {uploading && <Upload of={uploading} onClose={() => setUploading(undefined)} onDone={again} />}
    </Page>
  );
}

/** How many devices of a rollout are in which state. */
function Counts({ id, round }: { id: string; round: number }) {
  const { data } = useLoad(
    () => done(api.GET('/api/v1/firmware/rollouts/{id}', { params: { path: { id } } })),
    [id, round],
    3000,
  );
  const counts = Object.entries(data?.firmwareRollout.counts ?? {}).filter(([, count]) => count > 0);
  return (
    <span class="row">
      {counts.map(([state, count]) => (
        <Badge
          key={state}
          kind={state === 'succeeded' ? 'good' : state === 'failed' || state === 'timedOut' ? 'bad' : undefined}
          text={`${state} ${count}`}
        />
      ))}
    </span>
  );
}

function NewPackage({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const save = async ({ name = '', firmwareVersion = '', deviceTemplateId = '' }: Values) => {
    const body = { accountId: accountId.value, name, firmwareVersion, deviceTemplateId };
    await done(api.POST('/api/v1/firmware/packages', { body }));
    onDone();
  };
  return (
    <Dialog title={words.newPackage} onClose={onClose}>
      <Form save={save} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required />
        <Field label={words.version} name="firmwareVersion" required />
        <Picker kind="product" label={texts.devices.product} name="deviceTemplateId" />
      </Form>
    </Dialog>
  );
}

/** Sends a file as it is; the browser says how far it has come. */
function Upload({ of, onClose, onDone }: { of: Package; onClose: () => void; onDone: () => void }) {
  const save = async (_: Values, form: HTMLFormElement) => {
    const file = form.querySelector<HTMLInputElement>('input[type=file]')?.files?.[0];
    if (!file) throw new Error(words.chooseFile);
    await done(
      api.PUT('/api/v1/firmware/packages/{id}/files/{name}', {
        // A whole file needs neither of the headers that the document knows.
        params: { path: { id: of.id, name: file.name }, header: {} as never },
        headers: { 'content-type': 'application/octet-stream' },
        body: file as never,
        bodySerializer: (body) => body as unknown as Blob,
      }),
    );
    toast(words.uploaded(file.name));
    onDone();
  };
  return (
    <Dialog title={words.uploadTo(of.name)} onClose={onClose}>
      <Form save={save} verb={words.upload} onCancel={onClose}>
        <label class="field">
          {words.file}
          <input type="file" required />
        </label>
      </Form>
    </Dialog>
  );
}

function NewRollout({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const { data } = useLoad(() => readPackages(1), []);
  const published = data?.results?.filter(({ state }) => state === 'published') ?? [];
  const save = async ({ firmwarePackageId = '', first = '10', organizationId }: Values) => {
    const of = published.find(({ id }) => id === firmwarePackageId);
    const filter = of ? { deviceTemplateId: of.deviceTemplateId } : {};
    const target = organizationId ? { organizationId } : { filter };
    const stages = Number(first) >= 100 ? [{ percent: 100 }] : [{ percent: Number(first) }, { percent: 100 }];
    await done(
      api.POST('/api/v1/firmware/rollouts', {
        body: { accountId: accountId.value, firmwarePackageId, target, stages },
      }),
    );
    onDone();
  };
  return (
    <Dialog title={words.newRollout} onClose={onClose}>
      {published.length === 0 ? (
        <p>{words.noPublished}</p>
      ) : (
        <Form save={save} verb={words.start} onCancel={onClose}>
          <Select
            label={words.tabs['']}
            name="firmwarePackageId"
            options={published.map(({ id, name, firmwareVersion }) => [id, `${name} ${firmwareVersion}`] as const)}
          />
          <Picker
            kind="organization"
            label={texts.devices.organization}
            name="organizationId"
            none={words.allOfProduct}
          />
          <Field label={words.first} name="first" type="number" min="1" max="100" defaultValue="10" />
        </Form>
      )}
    </Dialog>
  );
}
