/** Firmware packages: drafts with their files, published and retired ones. */
import { useState } from 'preact/hooks';
import { ownHeaders } from '../app/acting.ts';
import { ApiError, api, unwrap } from '../app/api.ts';
import { type Entity, make, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Dialog } from '../parts/dialogs/dialog.tsx';
import { demandUnchanged } from '../parts/forms/files.ts';
import { Field, Form, type Values } from '../parts/forms/form.tsx';
import { deletion } from '../parts/lists/deletions.ts';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { creating } from '../parts/lists/verbs.tsx';
import { State } from '../parts/page/state.tsx';
import { texts } from '../texts.ts';

const words = texts.firmware;

/** The newest that can be rolled out, of a product or of all, as choices. */
export async function readPublished(deviceTemplateId?: string) {
  const { results = [] } = await readList('firmwarePackage', 1, {
    ...{ state: 'published', sortOrder: 'desc' },
    ...(deviceTemplateId !== undefined && { deviceTemplateId }),
  });
  const options = results.map(({ id, name, firmwareVersion }) => [id, `${name} ${firmwareVersion}`] as const);
  return { packages: results, options };
}
type Package = Entity<'firmwarePackage'>;

const bytes = (size: number) =>
  size < 1024
    ? `${size} B`
    : size < 1024 ** 2
      ? `${(size / 1024).toFixed(1)} KB`
      : `${(size / 1024 ** 2).toFixed(1)} MB`;

export const packages: EntityList<Package> = {
  label: words.tabs[''],
  kind: 'firmwarePackage',
  trash: 'firmware',
  empty: words.noPackages,
  every: 10_000,
  load: (page) => readList('firmwarePackage', page, { count: 'devices' }),
  columns: [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    { name: 'version', label: words.version, show: ({ firmwareVersion }) => firmwareVersion },
    { name: 'state', label: texts.state, show: ({ state }) => <State of={state} /> },
    { name: 'devices', label: texts.places.devices, show: ({ deviceCount = 0 }) => deviceCount.toLocaleString() },
    {
      name: 'files',
      label: words.files,
      wrap: true,
      show: ({ files }) => files.map(({ name, size }) => `${name} (${bytes(size)})`).join(', ') || '–',
    },
  ],
  create: () => can('create', 'firmwarePackage') && newPackage,
  verbs: (of) =>
    can('update', 'firmwarePackage')
      ? [
          of.state === 'draft' && {
            text: words.upload,
            dialog: (finish, close) => <Upload of={of} onDone={(said) => finish({ said })} onClose={close} />,
          },
          of.state === 'draft' && { text: words.publish, run: () => put(of, 'publish') },
          of.state === 'published' && { text: words.retire, run: () => put(of, 'retire') },
          deletion('firmwarePackage', of),
        ]
      : [],
};

async function put({ id, version }: Package, verb: 'publish' | 'retire') {
  const params = { path: { id }, header: { etag: version } };
  await unwrap(api.POST(`/api/v1/firmware/packages/{id}/${verb}`, { params }));
}

const newPackage = creating(words.newPackage, {
  fields: () => [
    { name: 'name', label: texts.name, required: true },
    { name: 'firmwareVersion', label: words.version, required: true },
    { name: 'deviceTemplateId', label: texts.product, pick: 'product' },
    { name: 'description', label: texts.description },
  ],
  save: async ({ name = '', firmwareVersion = '', deviceTemplateId = '', description }) => {
    await make('firmwarePackage', { name, firmwareVersion, deviceTemplateId, description });
  },
});

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

function Upload({ of, onClose, onDone }: { of: Package; onClose: () => void; onDone: (said: string) => void }) {
  const [share, setShare] = useState<number>();
  const save = async ({ revision = of.firmwareVersion }: Values, form: HTMLFormElement) => {
    const file = form.querySelector<HTMLInputElement>('input[type=file]')?.files?.[0];
    if (!file) throw new Error(words.chooseFile);
    await demandUnchanged(file);
    const query = new URLSearchParams({ revision });
    await send(
      `/api/v1/firmware/packages/${of.id}/files/${encodeURIComponent(file.name)}?${query}`,
      file,
      setShare,
    ).finally(() => setShare(undefined));
    onDone(words.uploaded(file.name));
  };
  return (
    <Dialog title={words.uploadTo(of.name)} onClose={onClose}>
      <Form save={save} verb={words.upload} onCancel={onClose}>
        <label class="field">
          {texts.file}
          <input type="file" required />
        </label>
        <Field label={words.revision} name="revision" hint={words.revisionHint} placeholder={of.firmwareVersion} />
        {share !== undefined && (
          <p>
            <progress max={1} value={share} aria-label={texts.firmware.upload} />
            <span class="small soft">{Math.round(share * 100)} %</span>
          </p>
        )}
      </Form>
    </Dialog>
  );
}
