/** A list of the API with its pages, whose number is in the address. */
import type { ComponentChildren } from 'preact';
import { useSearchParams } from 'wouter-preact';
import { useLoad } from '../load.ts';
import { type Column, Pager, Table } from './table.tsx';

export const pageSize = 50;

interface Slice<T> {
  results?: T[];
  meta?: { count: number };
}

export function Listing<T extends { id: string }>({
  label,
  load,
  on = [],
  every,
  page: given,
  onPage,
  ...table
}: {
  label: string;
  load: (page: number, signal: AbortSignal) => Promise<Slice<T>>;
  /** Further values whose change loads the list again. */
  on?: readonly unknown[];
  every?: number;
  /** Where the page does not be in the address: in a dialog. */
  page?: number;
  onPage?: (page: number) => void;
  columns: readonly Column<T>[];
  href?: (row: T) => string;
  empty: ComponentChildren;
}) {
  const [search, setSearch] = useSearchParams();
  const page = given ?? Number(search.get('page') ?? 1);
  const { data, error, loading } = useLoad((signal) => load(page, signal), [page, label, ...on], every);
  const turn = (to: number) =>
    setSearch((before) => {
      before.set('page', String(to));
      return before;
    });
  return (
    <>
      <Table label={label} rows={data?.results} loading={loading} error={data ? undefined : error} {...table} />
      <Pager page={page} pageSize={pageSize} count={data?.meta?.count} onPage={onPage ?? turn} />
    </>
  );
}
