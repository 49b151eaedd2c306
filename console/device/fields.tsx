/** The fields of a device, custom ones too. Where somebody else has changed it meanwhile, both versions are shown. */
import { useState } from 'preact/hooks';
import { ApiError } from '../app/api.ts';
import { change, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { Dialog } from '../parts/dialogs/dialog.tsx';
import { toast } from '../parts/dialogs/toast.tsx';
import { Button, Field, Form, type Values } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { type Schema, SchemaField } from '../parts/forms/schema.tsx';
import { Loading } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { type DeviceRow, readDevice } from './row.ts';

const words = texts.device;
/** Fields that every device has. */
export const fieldNames = [
  'name',
  'firmwareVersion',
  'deviceVersion',
  'location',
  'latitude',
  'longitude',
  'purchaseDate',
] as const;
type Changes = Record<string, string | null>;

export async function readCustomFields(deviceTemplateId: string) {
  if (!can('read', 'customField')) return [];
  return (await readList('customField', 1, { deviceTemplateId, pageSize: 1000 })).results ?? [];
}
type CustomField = Awaited<ReturnType<typeof readCustomFields>>[number];

/** A field as a text; the device has custom fields that its type does not know. */
export function valueOfField(device: DeviceRow, name: string): string | null {
  const value = Object.entries(device).find(([key]) => key === name)?.[1] ?? null;
  return value === null ? null : String(value);
}

export function Fields({ device, onSaved }: { device: DeviceRow; onSaved: () => void }) {
  // The values at the opening of the form: a later read must not replace what a person is typing.
  const [base, setBase] = useState(device);
  const [conflict, setConflict] = useState<{ mine: Changes; theirs: DeviceRow }>();
  const { data: custom } = useLoad(() => readCustomFields(device.deviceTemplateId), [device.deviceTemplateId]);
  if (!custom) return <Loading />;
  const put = async (changes: Changes, version: string) => {
    setBase(await change('device', { id: device.id, version }, changes));
    setConflict(undefined);
    toast(texts.saved);
    onSaved();
  };
  const save = async (values: Values) => {
    const changes: Changes = {};
    for (const name of [...fieldNames, ...custom.map(({ name }) => name), 'organizationId']) {
      const value = values[name] ?? null;
      if (value !== valueOfField(base, name)) changes[name] = value;
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
      <Form key={base.version} save={save} verb={texts.save} fixed={!can('update', 'device')}>
        <div class="grid fields">
          {fieldNames.map((name) => (
            <Field key={name} label={words.fields[name]} name={name} defaultValue={base[name] ?? ''} />
          ))}
          {can('read', 'organization') && (
            <Picker
              kind="organization"
              label={texts.organization}
              name="organizationId"
              none={texts.none}
              value={base.organizationId ?? ''}
            />
          )}
        </div>
        {custom.length > 0 && (
          <>
            <h2 class="gap">{texts.products.fields}</h2>
            <div class="grid fields">
              {custom.map((field) => (
                <Custom key={field.id} field={field} value={valueOfField(base, field.name)} />
              ))}
            </div>
          </>
        )}
      </Form>
      {conflict && (
        <Conflict
          {...conflict}
          save={() => put(conflict.mine, conflict.theirs.version)}
          onTheirs={() => {
            setBase(conflict.theirs);
            setConflict(undefined);
          }}
          onClose={() => setConflict(undefined)}
        />
      )}
    </section>
  );
}

/** Somebody else has saved meanwhile. */
function Conflict({
  mine,
  theirs,
  save,
  onTheirs,
  onClose,
}: {
  mine: Changes;
  theirs: DeviceRow;
  save: () => Promise<void>;
  onTheirs: () => void;
  onClose: () => void;
}) {
  return (
    <Dialog title={words.conflict} onClose={onClose}>
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
          {Object.entries(mine).map(([name, value]) => (
            <tr key={name}>
              <td>{name}</td>
              <td>{value ?? '–'}</td>
              <td>{valueOfField(theirs, name) ?? '–'}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Form save={save} verb={words.saveMine}>
        <Button label={words.takeTheirs} onClick={onTheirs} />
      </Form>
    </Dialog>
  );
}

/** Custom fields as schemas; types that are not here are a line of text. */
const schemas: Record<string, Schema> = {
  boolean: { type: ['boolean', 'null'] },
  int: { type: 'integer' },
  float: { type: 'number' },
  email: { type: 'string', format: 'email' },
  text: { type: 'string', maxLength: 1000 },
};

function Custom({ field, value }: { field: CustomField; value: string | null }) {
  const { name, fieldType, description, required } = field;
  const schema = { type: 'string', ...schemas[fieldType], ...(description !== null && { description }) };
  // A choice and a number are the same as JSON and as text.
  const set = value === null ? {} : { default: fieldType === 'boolean' ? value === 'true' : value };
  return <SchemaField of={{ schema: { ...schema, ...set }, path: name, label: name, required }} />;
}
