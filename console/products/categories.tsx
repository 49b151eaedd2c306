/** How values of a channel are shown: a row for each category, in a form. */
import { useState } from 'preact/hooks';
import type { paths } from '../api-types.d.ts';
import { Button, Field, Select } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';

const words = texts.products.categories;

type Body = paths['/api/v1/channels/templates/{id}']['put']['requestBody'];
export type Category = NonNullable<NonNullable<Body>['content']['application/json']['categories']>[number];

/** As many as a channel template can have. */
const maxCategories = 50;

/** The field `categories` of a form has them as JSON. */
export function Categories({ of }: { of: readonly Category[] }) {
  const [rows, setRows] = useState(() => of.map((category, key) => ({ category, key })));
  const change = (key: number, part: Partial<Category>) =>
    setRows((before) => before.map((row) => (row.key === key ? { key, category: { ...row.category, ...part } } : row)));
  const add = () =>
    setRows((before) => [
      ...before,
      { key: Math.max(0, ...before.map(({ key }) => key)) + 1, category: { name: '', kind: 'number' } },
    ]);
  return (
    <fieldset class="categories">
      <legend>{words.title}</legend>
      <p class="hint">{words.hint}</p>
      <input
        type="hidden"
        name="categories"
        value={JSON.stringify(rows.map(({ category }) => withoutBlanks(category)))}
      />
      {rows.map(({ key, category: { name, label = '', unit = '', kind } }) => (
        <div class="row" key={key}>
          <Field label={texts.category} value={name} maxLength={255} onText={(name) => change(key, { name })} />
          <Field label={words.label} value={label} maxLength={100} onText={(label) => change(key, { label })} />
          <Field label={words.unit} value={unit} maxLength={20} onText={(unit) => change(key, { unit })} />
          <Select
            label={texts.kind}
            value={kind}
            options={Object.entries(words.kinds)}
            onText={(kind) => change(key, { kind: kind as Category['kind'] })}
          />
          <Button
            label={texts.delete}
            aria-label={texts.verbOf(texts.delete, name)}
            onClick={() => setRows((before) => before.filter((row) => row.key !== key))}
          />
        </div>
      ))}
      {rows.length < maxCategories && <Button label={words.add} onClick={add} />}
    </fieldset>
  );
}

function withoutBlanks({ name, label, unit, kind }: Category): Category {
  return { name, kind, ...(label && { label }), ...(unit && { unit }) };
}
