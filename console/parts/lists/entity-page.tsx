/** A place from its description: lists with their columns, filters and verbs, each list a tab where there are several. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { useSearchParams } from 'wouter-preact';
import { useAction } from '../../app/actions.ts';
import type { Slice } from '../../app/entities.ts';
import { can } from '../../app/session.ts';
import { texts } from '../../texts.ts';
import { Select } from '../forms/form.tsx';
import { Page, Tabs, TrashLink, type trashed } from '../page/page.tsx';
import { Listing } from './listing.tsx';
import { useParam } from './param.ts';
import type { Column } from './table.tsx';
import { itemsOf, type Start, useVerbs, type Verb, VerbButtons, type Verbs } from './verbs.tsx';

/** Of the address, by name; empty is none. */
export type Filters = Record<string, string>;

type Columns<T> = readonly Column<T>[];

export interface EntityList<T extends { id: string } = { id: string }> {
  label: string;
  /** In the words of rights: who may not read it is not shown that there is such a list. */
  kind: string;
  load(page: number, filters: Filters, signal: AbortSignal): Promise<Slice<T>>;
  columns: Columns<T> | ((filters: Filters) => Columns<T>);
  /** What is said above the rows. */
  note?(): ComponentChildren;
  /** Instead of the rows, where there are none. */
  empty: string;
  /** Its name, by which its row is called. */
  nameOf?(of: T): string;
  /** Where the first cell leads. */
  href?(of: T): string;
  /** What can be done with one, by those who may. */
  verbs?(of: T): Verbs;
  create?(): Verb | false;
  filters?: readonly {
    name: string;
    label: string;
    options: readonly (readonly [string, string])[];
    isShown?(): boolean;
  }[];
  /** Milliseconds until it is read again. */
  every?: number;
  newestFirst?: boolean;
  /** The name of its page in the address, where a page has several lists. */
  param?: string;
  trash?: keyof typeof trashed;
}

/** A list, what can be done with it and its rows, and how often it was read for that. */
function useList(list: EntityList, isPart = false) {
  const [round, setRound] = useState(0);
  const verbs = useVerbs(() => setRound((before) => before + 1));
  const created = list.create?.() || undefined;
  const button = created && isPart ? { ...created, kind: undefined } : created;
  const buttons = button && <VerbButtons verbs={[button]} start={verbs.start} />;
  const rows = (
    <>
      {verbs.notes}
      {list.note?.()}
      <Rows key={list.label} of={list} round={round} start={verbs.start} />
      {verbs.dialog}
    </>
  );
  return { start: verbs.start, created, buttons, rows };
}

export function EntityPage({
  title,
  path,
  tab: asked = '',
  lists,
}: {
  title: string;
  path: `/${string}`;
  tab?: string;
  /** By the last part of their addresses, which the first has not. */
  lists: Readonly<Record<string, EntityList>>;
}) {
  const shown = Object.entries(lists).filter(([, { kind }]) => can('read', kind));
  const [tab, list] = shown.find(([name]) => name === asked) ?? shown[0] ?? [];
  if (tab === undefined || list === undefined) return <Page title={title}>{texts.nothing}</Page>;
  const tabs = shown.map(([name, { label }]) => [name, label] as const);
  return <ListPage {...{ title, path, tab, tabs, list }} />;
}

function ListPage({
  title,
  path,
  tab,
  tabs,
  list,
}: {
  title: string;
  path: `/${string}`;
  tab: string;
  tabs: readonly (readonly [string, string])[];
  list: EntityList;
}) {
  const { start, created, buttons, rows } = useList(list);
  useAction(tab === '' ? path : `${path}/${tab}`, () => created && start(created));
  return (
    <Page title={title} trash={list.trash} actions={buttons}>
      {tabs.length > 1 && <Tabs base={path} current={tab} tabs={tabs} />}
      {rows}
    </Page>
  );
}

/** A list as a part of a page. */
export function EntityPart({ of: list, heading }: { of: EntityList; heading?: string }) {
  const { buttons, rows } = useList(list, heading !== undefined);
  return (
    <section>
      {(heading || buttons || list.trash) && (
        <div class="head">
          {heading && <h2>{heading}</h2>}
          <div class="row">
            {buttons}
            {list.trash && <TrashLink of={list.trash} />}
          </div>
        </div>
      )}
      {rows}
    </section>
  );
}

function Rows({ of: list, round, start }: { of: EntityList; round: number; start: Start }) {
  const [search] = useSearchParams();
  const filters = Object.fromEntries((list.filters ?? []).map(({ name }) => [name, search.get(name) ?? '']));
  const shown = list.filters?.filter(({ isShown }) => isShown?.() ?? true) ?? [];
  const { label, columns, every, newestFirst, param, verbs, nameOf, href, empty } = list;
  return (
    <>
      {shown.length > 0 && (
        <search class="toolbar">
          {shown.map((filter) => (
            <FilterField key={filter.name} of={filter} />
          ))}
        </search>
      )}
      <Listing
        {...{ label, every, newestFirst, param, href }}
        columns={typeof columns === 'function' ? columns(filters) : columns}
        on={[round, ...Object.values(filters)]}
        load={(page, signal) => list.load(page, filters, signal)}
        nameOf={nameOf ?? (({ name, id }: { id: string; name?: string }) => name ?? id)}
        actions={verbs && ((of: { id: string }) => itemsOf(list.verbs?.(of) ?? [], start))}
        empty={<p>{empty}</p>}
      />
    </>
  );
}

function FilterField({ of: { name, label, options } }: { of: NonNullable<EntityList['filters']>[number] }) {
  const [value, set] = useParam(name);
  return <Select label={label} value={value} options={options} onText={set} />;
}
