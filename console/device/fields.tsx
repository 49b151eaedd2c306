/** The fields of a device. Where somebody else has changed it meanwhile, both versions are shown. */
import { useState } from 'preact/hooks';
import { ApiError, api, done } from '../app/api.js';
import { can } from '../app/session.js';
import { Dialog } from '../parts/dialog.js';
import { Field, Form, type Values } from '../parts/form.js';
import { Picker } from '../parts/picker.js';
import { toast } from '../parts/toast.js';
import { texts } from '../texts.js';
import { type DeviceRow, readDevice } from './row.js';

const words = texts.device;
const names = [
  'name',
  'firmwareVersion',
  'deviceVersion',
  'location',
  'latitude',
  'longitude',
  'purchaseDate',
] as const;
type Changes = Partial<Record<(typeof names)[number] | 'organizationId', string | null>>;

export function Fields({ device, onSaved }: { device: DeviceRow; onSaved: () => void }) {
  // What was read when the form was opened: a later reading must not replace what somebody is typing.
  const [base, setBase] = useState(device);
  const [conflict, setConflict] = useState<{ mine: Changes; theirs: DeviceRow }>();
  const put = async (changes: Changes, version: string) => {
    const header = { etag: version };
    const { device: saved } = await done(
      api.PUT('/api/v1/devices/{id}', { params: { path: { id: device.id }, header }, body: changes as never }),
    );
    setBase(saved);
    setConflict(undefined);
    toast(texts.saved);
    onSaved();
  };
  const save = async (values: Values) => {
    const changes: Changes = {};
    for (const name of [...names, 'organizationId'] as const) {
      const value = values[name] ?? null;
      if (value !== (base[name] ?? null)) changes[name] = value;
    }
    if (Object.keys(changes).length === 0) return;
    try {
      await put(changes, base.version);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 412)) throw error;
      setConflict({ mine: changes, theirs: await readDevice(device.id) });
    }
  };
  return (
    <section class="panel">
      <Form key={base.version} save={save} verb={texts.save}>
        <div class="grid">
          {names.map((name) => (
            <Field key={name} label={words.fields[name]} name={name} defaultValue={base[name] ?? ''} />
          ))}
          {can('read', 'organization') && (
            <Picker
              kind="organization"
              label={texts.devices.organization}
              name="organizationId"
              none={texts.none}
              value={base.organizationId ?? ''}
            />
          )}
        </div>
      </Form>
      {conflict && (
        <Dialog title={words.conflict} onClose={() => setConflict(undefined)}>
          <p>{words.conflictSays}</p>
          <table>
            <thead>
              <tr>
                <th scope="col">{words.field}</th>
                <th scope="col">{words.mine}</th>
                <th scope="col">{words.theirs}</th>
              </tr>
            </thead>
            <tbody>
              {Object.entries(conflict.mine).map(([name, value]) => (
                <tr key={name}>
                  <td>{name}</td>
                  <td>{value ?? '–'}</td>
                  <td>{String(conflict.theirs[name as 'location'] ?? '–')}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <Form save={() => put(conflict.mine, conflict.theirs.version)} verb={words.saveMine}>
            <button
              type="button"
              onClick={() => {
                setBase(conflict.theirs);
                setConflict(undefined);
              }}
            >
              {words.takeTheirs}
            </button>
          </Form>
        </Dialog>
      )}
    </section>
  );
}
