/** The toolbar of the table of devices. */
import { useState } from 'preact/hooks';
import { can } from '../app/session.ts';
import { Button, Select } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { SearchField } from '../parts/lists/search-field.tsx';
import { texts } from '../texts.ts';
import { sizes } from './query.ts';

const words = texts.devices;
/** Filters that fold, as the address names them. */
const filters = ['organization', 'product', 'state', 'connected'];

/** Search, filters and what is shown. On a phone the filters fold. */
export function Toolbar({
  search,
  set,
  pageSize,
  onColumns,
  onExport,
}: {
  search: URLSearchParams;
  set: (values: Record<string, string>) => void;
  pageSize: number;
  onColumns: () => void;
  onExport: () => void;
}) {
  const [isOpen, setOpen] = useState(false);
  const count = filters.filter((name) => search.has(name)).length;
  return (
    <search class={isOpen ? 'toolbar folding open' : 'toolbar folding'}>
      <SearchField
        label={texts.search}
        hint={words.searchHint}
        value={search.get('q') ?? ''}
        onText={(q) => set({ q })}
      />
      <Button label={words.filters(count)} class="fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} />
      <Picker
        kind="organization"
        label={words.withBelow}
        none={texts.all}
        value={search.get('organization') ?? ''}
        onText={(organization) => set({ organization })}
      />
      {can('read', 'deviceTemplate') && (
        <Picker
          kind="product"
          label={texts.product}
          none={texts.all}
          value={search.get('product') ?? ''}
          onText={(product) => set({ product })}
        />
      )}
      <Select
        label={texts.state}
        value={search.get('state') ?? ''}
        onText={(state) => set({ state })}
        options={[['', texts.all], ...Object.entries(words.states)]}
      />
      <Select
        label={words.connected}
        value={search.get('connected') ?? ''}
        onText={(connected) => set({ connected })}
        options={[
          ['', texts.all],
          ['true', texts.online],
          ['false', texts.offlineShort],
        ]}
      />
      <Select
        label={words.perPage}
        value={String(pageSize)}
        onText={(size) => set({ size })}
        options={sizes.map((size) => [size, size] as const)}
      />
      <Button label={words.columns} onClick={onColumns} />
      <Button label={words.export} onClick={onExport} />
    </search>
  );
}
