/** Which columns the table of devices has. */
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { ErrorNote } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';
import { columns, namesOf, ofField, ofValue } from './columns.tsx';
import { readCustomFields } from './query.ts';
import { type DeclaredCategory, maxValues, primaryName, readSaid } from './values.tsx';

const words = texts.devices;

/** Chooses columns; those of custom fields are of the product that is filtered by, or of all. */
export function Columns({
  shown,
  choose,
  product,
  onClose,
}: {
  shown: string[];
  choose: (names: string[]) => void;
  product: string | undefined;
  onClose: () => void;
}) {
  const { data, error } = useLoad(async () => (can('read', 'customField') ? readCustomFields(product) : []), [product]);
  const { data: said = [] } = useLoad(() => readSaid(product), [product]);
  const fields = [...new Set([...(data ?? []).map(({ label }) => label), ...namesOf(shown, ofField)])];
  const chosen = namesOf(shown, ofValue);
  const names = [...new Set([primaryName, ...said.map(({ name }) => name), ...chosen])];
  const check = (name: string, label: string, isFull = false) => (
    <label class="check" key={name}>
      <input
        type="checkbox"
        checked={shown.includes(name)}
        disabled={isFull && !shown.includes(name)}
        onChange={() => choose(shown.includes(name) ? shown.filter((one) => one !== name) : [...shown, name])}
      />
      {label}
    </label>
  );
  return (
    <Dialog title={words.columns} onClose={onClose}>
      {columns.slice(1).map(({ name, label }) => check(name, label))}
      <h3>{words.valueColumns}</h3>
      <p class="hint">{words.valueColumnsHint(maxValues)}</p>
      {names.map((name) => check(`${ofValue}${name}`, labelOf(name, said), chosen.length >= maxValues))}
      <ErrorNote error={error} />
      {fields.length > 0 && <h3>{texts.products.fields}</h3>}
      {fields.map((name) => check(`${ofField}${name}`, name))}
      <CloseButton onClose={onClose} primary />
    </Dialog>
  );
}

/** Two products may say the same name in two ways: the channel tells them apart. */
function labelOf(name: string, said: readonly DeclaredCategory[]): string {
  const found = said.find((one) => one.name === name);
  return name === primaryName ? texts.value : found ? `${found.label} (${found.channel})` : name;
}
