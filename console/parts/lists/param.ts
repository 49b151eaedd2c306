/** What a list shows, in its address: it can be shared, and Back finds it again. */
import { useSearchParams } from 'wouter-preact';

/** A filter of the address, and how it is set: the list begins at its first page then. Empty is none. */
export function useParam(name: string): [value: string, set: (value: string) => void] {
  const [search, setSearch] = useSearchParams();
  const set = (value: string) =>
    setSearch(
      (before) => {
        before.delete('page');
        if (value === '') before.delete(name);
        else before.set(name, value);
        return before;
      },
      { replace: true },
    );
  return [search.get(name) ?? '', set];
}
