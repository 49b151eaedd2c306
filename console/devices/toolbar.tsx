/** The toolbar of the table of devices: search, filter, and what is shown. On a phone all but the first two fold. */
import { useState } from 'preact/hooks';
import { Button, Select } from '../parts/forms/form.tsx';
import { SearchField } from '../parts/lists/search-field.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { texts } from '../texts.ts';
import { FilterText, type Wrong } from './filter/bar.tsx';
import { partsOf } from './filter/text.ts';
import { type DeviceFilter, sizes } from './query.ts';

const words = texts.devices;

/** Before it is opened: who types at once must not wait for it. */
const loadEditor = () => void import('./filter/editor.tsx').catch(() => {});

/** The button that adds a comparison, unless the text is no filter: then nothing can be added to it. */
function AddFilter({ text, onOpen }: { text: string; onOpen: () => void }) {
  const isFilter = partsOf(text) !== undefined;
  return (
    <button
      type="button"
      class="stays"
      aria-disabled={isFilter ? undefined : true}
      title={isFilter ? undefined : texts.filters.mendFirst}
      onFocus={loadEditor}
      onPointerEnter={loadEditor}
      onClick={() => isFilter && onOpen()}
    >
      <Icon name="more" /> {texts.filters.add}
    </button>
  );
}

export function Toolbar({
  filter,
  wrong,
  set,
  onText,
  onFilter,
  pageSize,
  onColumns,
  onExport,
}: {
  filter: DeviceFilter;
  wrong: Wrong | undefined;
  set: (values: Record<string, string>) => void;
  onText: (text: string) => void;
  onFilter: () => void;
  pageSize: number;
  onColumns: () => void;
  onExport: () => void;
}) {
  const [isOpen, setOpen] = useState(false);
  // What has to be put right is in sight.
  const isShown = isOpen || wrong !== undefined;
  return (
    <search class={isShown ? 'toolbar folding open' : 'toolbar folding'}>
      <SearchField label={texts.search} hint={words.searchHint} value={filter.q ?? ''} onText={(q) => set({ q })} />
      <AddFilter text={filter.text ?? ''} onOpen={onFilter} />
      <Button label={words.more} class="fold" aria-expanded={isShown} onClick={() => setOpen(!isOpen)} />
      <FilterText text={filter.text ?? ''} onText={onText} wrong={wrong} />
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
