/** Filters that links of other places set, and that have no field here: each says what it is, and can be taken away. */
import { Icon } from '../parts/page/icons.tsx';
import { texts } from '../texts.ts';

const words = texts.devices.chips;

export function Chips({ search, set }: { search: URLSearchParams; set: (values: Record<string, string>) => void }) {
  const chips = Object.entries(words.names).flatMap(([name, says]) => {
    const value = search.get(name);
    return value ? [{ name, text: says(value) }] : [];
  });
  if (chips.length === 0) return null;
  return (
    <p class="row">
      {chips.map(({ name, text }) => (
        <span class="badge chip" key={name}>
          {text}
          <button type="button" class="plain" aria-label={words.remove(text)} onClick={() => set({ [name]: '' })}>
            <Icon name="close" />
          </button>
        </span>
      ))}
    </p>
  );
}
