/** The only table: columns, selection, sorting, pages, loading and emptiness. A long one draws the rows that are drawn. */
import type { ComponentChildren } from 'preact';
import { memo } from 'preact/compat';
import { useCallback, useMemo, useRef, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { texts } from '../../texts.ts';
import { Button, ErrorNote } from '../forms/form.tsx';
import { useDrawnRows } from './drawn-rows.ts';
import { type Items, MenuButton, Popup } from './menu.tsx';

export interface Column<T> {
  name: string;
  label: string;
  show(row: T): ComponentChildren;
  /** The API's name of the sort. */
  sort?: string;
  wrap?: boolean;
}

export interface Sort {
  by: string;
  order: 'asc' | 'desc';
}

interface TableProps<T> {
  label: string;
  rows: readonly T[] | undefined;
  columns: readonly Column<T>[];
  loading?: boolean;
  error?: unknown;
  /** Where the first cell leads. */
  href?: (row: T) => string;
  nameOf?: (row: T) => string;
  sort?: Sort;
  onSort?: (sort: Sort) => void;
  selected?: ReadonlySet<string>;
  onSelect?: (ids: ReadonlySet<string>) => void;
  /** What can be done with a row, in a menu at its end. */
  actions?: ((row: T) => Items) | undefined;
  /** Rows that have come while the list was looked at. */
  fresh?: ReadonlySet<string>;
  empty: ComponentChildren;
}

export function Table<T extends { id: string }>({
  label,
  rows,
  columns,
  loading,
  error,
  href,
  nameOf,
  sort,
  onSort,
  selected,
  onSelect,
  actions,
  fresh,
  empty,
}: TableProps<T>) {
  const drawn = useDrawnRows(rows?.length ?? 0, columns);
  const latest = useRef({ selected, onSelect, actions });
  latest.current = { selected, onSelect, actions };
  const toggle = useCallback((id: string) => {
    const next = new Set(latest.current.selected);
    if (!next.delete(id)) next.add(id);
    latest.current.onSelect?.(next);
  }, []);
  const itemsOf = (row: T | undefined) => row && actions?.(row).some((item) => item);
  const isActing = useMemo(() => rows?.some(itemsOf), [rows, actions === undefined]);
  const [menu, setMenu] = useState<{ row: T; button: HTMLButtonElement }>();
  /** The row whose menu the browser closes because its button is pressed again. */
  const closing = useRef<string>();
  const openMenu = useCallback((row: { id: string }, button: HTMLButtonElement) => {
    setMenu(closing.current === row.id ? undefined : { row: row as T, button });
    closing.current = undefined;
  }, []);
  // Rows that show what they have shown are left alone: a table is drawn with each key of a search and each answer.
  const body = useMemo(
    () =>
      drawn.parts.map((part) =>
        typeof part === 'number' ? (
          <MemoRow
            key={rows?.[part]?.id}
            row={rows?.[part] as { id: string }}
            place={drawn.isLong ? part : undefined}
            columns={columns as readonly Column<{ id: string }>[]}
            href={href as ((row: { id: string }) => string) | undefined}
            nameOf={nameOf as ((row: { id: string }) => string) | undefined}
            selected={selected?.has(rows?.[part]?.id ?? '')}
            onToggle={onSelect && toggle}
            menu={isActing ? (itemsOf(rows?.[part]) ? openMenu : null) : undefined}
            isFresh={fresh?.has(rows?.[part]?.id ?? '') ?? false}
          />
        ) : (
          <tr key={`from ${part.from}`}>
            <td
              class="gap"
              colSpan={columns.length + (onSelect ? 1 : 0) + (isActing ? 1 : 0)}
              style={{ height: `${part.height}px` }}
            />
          </tr>
        ),
      ),
    [rows, columns, selected, fresh, isActing, drawn.parts],
  );
  if (error) return <ErrorNote error={error} />;
  if (rows === undefined)
    return (
      <div class="tablewrap empty" aria-busy="true">
        <span class="late">{texts.loading}</span>
      </div>
    );
  if (rows.length === 0) return <div class="tablewrap empty">{empty}</div>;
  const all = rows.every(({ id }) => selected?.has(id));
  return (
    <>
      <section
        class="tablewrap cards"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls sideways, and has to by keyboard
        tabIndex={0}
        aria-label={label}
        onPointerDownCapture={() => {
          closing.current = menu?.row.id;
        }}
      >
        <table ref={drawn.table} aria-busy={loading} aria-rowcount={drawn.isLong ? rows.length + 1 : undefined}>
          <thead>
            <tr>
              {onSelect && (
                <th class="tick">
                  <Tick
                    label={texts.selectAll}
                    checked={all}
                    onChange={() => onSelect(all ? new Set() : new Set(rows.map(({ id }) => id)))}
                  />
                </th>
              )}
              {columns.map((column) => (
                <Heading key={column.name} column={column} sort={sort} onSort={onSort} />
              ))}
              {isActing && (
                <th scope="col" class="last">
                  <span class="hidden">{texts.actions}</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody onFocusIn={drawn.onFocusIn}>{body}</tbody>
        </table>
        {menu && actions && (
          <Popup
            label={texts.actionsOf(nameOf?.(menu.row) ?? menu.row.id)}
            items={actions(menu.row)}
            button={menu.button}
            onClose={() => setMenu(undefined)}
          />
        )}
      </section>
      {drawn.isLong && (
        <p class="small soft gap row">
          {texts.inSight} <Button label={texts.drawAll(rows.length)} class="link" onClick={drawn.drawAll} />
        </p>
      )}
    </>
  );
}

/** The label around it makes it large enough to be hit. */
function Tick({ label, checked, onChange }: { label: string; checked: boolean; onChange: () => void }) {
  return (
    <label>
      <input type="checkbox" aria-label={label} checked={checked} onChange={onChange} />
    </label>
  );
}

function Row<T extends { id: string }>({
  row,
  place,
  columns,
  href,
  nameOf,
  selected,
  onToggle,
  menu,
  isFresh,
}: {
  row: T;
  /** Counted from 0, where the table does not draw all of its rows. */
  place: number | undefined;
  columns: readonly Column<T>[];
  href: ((row: T) => string) | undefined;
  nameOf: ((row: T) => string) | undefined;
  selected: boolean | undefined;
  onToggle: ((id: string) => void) | undefined;
  /** What opens its menu; null where it has none, though others have. */
  menu: ((row: T, button: HTMLButtonElement) => void) | null | undefined;
  isFresh: boolean;
}) {
  return (
    <tr
      class={isFresh ? 'fresh' : undefined}
      data-place={place}
      aria-rowindex={place === undefined ? undefined : place + 2}
    >
      {onToggle && (
        <td class="tick">
          <Tick
            label={texts.select(nameOf?.(row) ?? row.id)}
            checked={selected ?? false}
            onChange={() => onToggle(row.id)}
          />
        </td>
      )}
      {columns.map(({ name, label, show, wrap }, at) => (
        <td key={name} class={wrap ? 'wrap' : undefined} data-label={label}>
          {at === 0 && href ? <Link href={href(row)}>{cellOf(show(row))}</Link> : cellOf(show(row))}
          {at === 0 && isFresh && (
            <>
              {' '}
              <span class="badge good">{texts.fresh}</span>
            </>
          )}
        </td>
      ))}
      {menu !== undefined && (
        <td class="last">
          {menu && (
            <MenuButton label={texts.actionsOf(nameOf?.(row) ?? row.id)} onOpen={(button) => menu(row, button)} />
          )}
        </td>
      )}
    </tr>
  );
}

/** A text may be a name: it keeps to itself. Of an empty one nothing is left, so that a card leaves it out. */
const cellOf = (shown: ComponentChildren) => (typeof shown === 'string' && shown !== '' ? <bdi>{shown}</bdi> : shown);

/** While a long table scrolls, only rows that come into sight are drawn. */
const MemoRow = memo(Row<{ id: string }>);

function Heading<T>({
  column: { label, sort: by },
  sort,
  onSort,
}: {
  column: Column<T>;
  sort: Sort | undefined;
  onSort: ((sort: Sort) => void) | undefined;
}) {
  if (by === undefined || !onSort) return <th scope="col">{label}</th>;
  const order = sort?.by === by ? sort.order : undefined;
  const said = order && (order === 'asc' ? 'ascending' : 'descending');
  return (
    <th scope="col" aria-sort={said}>
      <button type="button" onClick={() => onSort({ by, order: order === 'asc' ? 'desc' : 'asc' })}>
        {label} {order === 'asc' ? '↑' : order === 'desc' ? '↓' : ''}
      </button>
    </th>
  );
}

export function Pager({
  page,
  pageSize,
  count,
  onPage,
}: {
  page: number;
  pageSize: number;
  count: number | undefined;
  onPage: (page: number) => void;
}) {
  if (count === undefined || count === 0) return null;
  const last = Math.max(1, Math.ceil(count / pageSize));
  return (
    <nav class="pager" aria-label={texts.pages}>
      <span>{last > 1 ? texts.pageOf(page, last, count) : texts.inAll(count)}</span>
      {last > 1 && (
        <span class="row">
          <Button label={texts.previous} idle={page <= 1} onClick={() => onPage(page - 1)} />
          <Button label={texts.next} idle={page >= last} onClick={() => onPage(page + 1)} />
        </span>
      )}
    </nav>
  );
}
