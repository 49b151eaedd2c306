/** A list of the API with its pages, whose number is in the address. */
import type { ComponentChildren } from 'preact';
import { useSearchParams } from 'wouter-preact';
import { pageSize, type Slice } from '../../app/entities.ts';
import { useLiveRows, usePageBefore } from './live-rows.ts';
import type { Items } from './menu.tsx';
import { type Column, Pager, Table } from './table.tsx';

export { pageSize };

export function Listing<T extends { id: string }>({
  label,
  load,
  on = [],
  every = 0,
  newestFirst = false,
  param = 'page',
  page: given,
  onPage,
  ...table
}: {
  label: string;
  load: (page: number, signal: AbortSignal) => Promise<Slice<T>>;
  /** Further values whose change loads the list again. */
  on?: readonly unknown[];
  /** Milliseconds until it is read again. */
  every?: number;
  newestFirst?: boolean;
  /** The name of its page in the address, where a page of the console has several lists. */
  param?: string;
  /** Where it is not in the address: in a dialog. */
  page?: number;
  onPage?: (page: number) => void;
  columns: readonly Column<NoInfer<T>>[];
  href?: (row: T) => string;
  nameOf?: (row: T) => string;
  actions?: (row: T) => Items;
  empty: ComponentChildren;
}) {
  const [search, setSearch] = useSearchParams();
  const page = given ?? Number(search.get(param) ?? 1);
  const { data, error, loading, fresh } = useLiveRows((signal) => load(page, signal), [page, label, ...on], {
    every,
    newestFirst,
  });
  const turn = (to: number, replace = false) =>
    setSearch(
      (before) => {
        before.set(param, String(to));
        return before;
      },
      { replace },
    );
  usePageBefore(page, { error, loading }, onPage ?? turn);
  return (
    <>
      <Table
        label={label}
        rows={data?.results}
        loading={loading}
        error={data ? undefined : error}
        fresh={fresh}
        {...table}
      />
      <Pager page={page} pageSize={pageSize} count={data?.meta?.count} onPage={onPage ?? turn} />
    </>
  );
}
