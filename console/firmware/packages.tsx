/** Firmware packages: drafts with their files, published and retired ones. */
import { useState } from 'preact/hooks';
import { ownHeaders } from '../app/acting.ts';
import { ApiError, api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Field, Form, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Badge } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';

const words = texts.firmware;

export async function readPackages(page: number) {
  const query = { accountId: accountId.value, page, pageSize, count: 'devices' };
  return (await unwrap(api.GET('/api/v1/firmware/packages', { params: { query } }))).firmwarePackages;
}
type Package = NonNullable<Awaited<ReturnType<typeof readPackages>>['results']>[number];

const bytes = (size: number) =>
  size < 1024
    ? `${size} B`
    : size < 1024 ** 2
      ? `${(size / 1024).toFixed(1)} KB`
      : `${(size / 1024 ** 2).toFixed(1)} MB`;

export function Packages({ round, onChanged }: { round: number; onChanged: () => void }) {
  const [uploading, setUploading] = useState<Package>();
  const change = async ({ id, version }: Package, verb: 'publish' | 'retire') => {
    const params = { path: { id }, header: { etag: version } };
    await unwrap(api.POST(`/api/v1/firmware/packages/{id}/${verb}`, { params }));
    onChanged();
  };
  const remove = async ({ id, version, name }: Package) => {
    const params = { path: { id }, header: { etag: version } };
    const { firmwarePackage } = await unwrap(api.DELETE('/api/v1/firmware/packages/{id}', { params }));
    onChanged();
    const gone = { path: { id }, header: { etag: firmwarePackage.version } };
    toast(words.deleted(name), () =>
      unwrap(api.POST('/api/v1/trash/firmware/packages/{id}/recover', { params: gone })),
    );
  };
  return (
    <>
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
            show: ({ state }) => (
              <Badge kind={state === 'published' ? 'good' : undefined} text={words.packageStates[state]} />
            ),
          },
          {
            name: 'devices',
            label: texts.places.devices,
            show: ({ deviceCount = 0 }) => deviceCount.toLocaleString(),
          },
          {
            name: 'files',
            label: words.files,
            wrap: true,
            show: ({ files }) => files.map(({ name, size }) => `${name} (${bytes(size)})`).join(', ') || '–',
          },
        ]}
        nameOf={({ name }) => name}
        {...(can('update', 'firmwarePackage') && {
          actions: (one: Package) => [
            one.state === 'draft' && { text: words.upload, run: () => setUploading(one) },
            one.state === 'draft' && { text: words.publish, run: () => void change(one, 'publish').catch(failed) },
            one.state === 'published' && { text: words.retire, run: () => void change(one, 'retire').catch(failed) },
            { text: texts.delete, run: () => void remove(one).catch(failed), danger: true },
          ],
        })}
        every={10_000}
        empty={<p>{words.noPackages}</p>}
      />
      {uploading && (
        <Upload
          of={uploading}
          onClose={() => setUploading(undefined)}
          onDone={() => {
            setUploading(undefined);
            onChanged();
          }}
        />
      )}
    </>
  );
}

export function NewPackage({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const save = async ({ name = '', firmwareVersion = '', deviceTemplateId = '', description }: Values) => {
    const more = description === undefined ? {} : { description };
    const body = { accountId: accountId.value, name, firmwareVersion, deviceTemplateId, ...more };
    await unwrap(api.POST('/api/v1/firmware/packages', { body }));
    onDone();
  };
  return (
    <Dialog title={words.newPackage} onClose={onClose}>
      <Form save={save} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required />
        <Field label={words.version} name="firmwareVersion" required />
        <Picker kind="product" label={texts.devices.product} name="deviceTemplateId" />
        <Field label={words.description} name="description" />
      </Form>
    </Dialog>
  );
}

/** Sends a file as it is. Only this request says how far it has come, so it is not one of `api`. */
function send(path: string, file: File, onProgress: (share: number) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('PUT', path);
    request.setRequestHeader('content-type', 'application/octet-stream');
    for (const [name, value] of Object.entries(ownHeaders('PUT'))) request.setRequestHeader(name, value);
    request.upload.addEventListener('progress', ({ loaded, total }) => onProgress(total === 0 ? 1 : loaded / total));
    request.addEventListener('error', () => reject(new Error(texts.unreachable)));
    request.addEventListener('load', () => {
      if (request.status < 300) return resolve();
      const body: unknown = request.responseText.startsWith('{') ? JSON.parse(request.responseText) : null;
      reject(new ApiError(request.status, body, request.getResponseHeader('x-request-id') ?? ''));
    });
    request.send(file);
  });
}

function Upload({ of, onClose, onDone }: { of: Package; onClose: () => void; onDone: () => void }) {
  const [share, setShare] = useState<number>();
  const save = async ({ revision = of.firmwareVersion }: Values, form: HTMLFormElement) => {
    const file = form.querySelector<HTMLInputElement>('input[type=file]')?.files?.[0];
    if (!file) throw new Error(words.chooseFile);
    const query = new URLSearchParams({ revision });
    await send(
      `/api/v1/firmware/packages/${of.id}/files/${encodeURIComponent(file.name)}?${query}`,
      file,
      setShare,
    ).finally(() => setShare(undefined));
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
        <Field label={words.revision} name="revision" hint={words.revisionHint} placeholder={of.firmwareVersion} />
        {share !== undefined && (
          <p>
            <progress max={1} value={share} aria-label={words.uploading} />
            <span class="small soft">{Math.round(share * 100)} %</span>
          </p>
        )}
      </Form>
    </Dialog>
  );
}
