/** The tree of organizations: made, moved by dragging or by a dialog, deleted to the trash. */
import { useMemo, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useAction } from '../app/actions.ts';
import { change, make } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { failed } from '../parts/dialogs/toast.tsx';
import { Button, ErrorNote } from '../parts/forms/form.tsx';
import { deletion } from '../parts/lists/deletions.ts';
import { Menu } from '../parts/lists/menu.tsx';
import { useParam } from '../parts/lists/param.ts';
import { SearchField } from '../parts/lists/search-field.tsx';
import { creating, itemsOf, type Start, useVerbs, VerbButtons, type Verbs } from '../parts/lists/verbs.tsx';
import { Loading, Page } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { branchesOf, type Organization, readTree } from './tree.ts';

const words = texts.organizations;
/** From so many on the tree has a search. */
const searchedFrom = 30;
/** How many are shown at first, and how many more each time. */
const step = 1000;

export function Organizations() {
  const [name, find] = useParam('q');
  const [shown, setShown] = useParam('shown');
  const wanted = Math.max(step, Number(shown) || 0);
  const { data, error, loading, reload } = useLoad((signal) => readTree(wanted, name, signal), [wanted, name]);
  const branches = useMemo(() => branchesOf(data?.organizations ?? []), [data]);
  const isMany = name !== '' || (data !== undefined && data.organizations.length + data.more > searchedFrom);
  const { start, finish, notes, dialog } = useVerbs(reload);
  const create = can('create', 'organization') && making();
  useAction('newOrganization', () => create && start(create));
  const drop = (one: Organization, to: string) => move(one, to).then(finish, failed);
  return (
    <Page
      title={texts.places.organizations}
      trash="organizations"
      actions={<VerbButtons verbs={[create]} start={start} />}
    >
      {notes}
      <ErrorNote error={error} />
      {isMany && (
        <search class="toolbar">
          <SearchField label={texts.search} hint={texts.searchByName} value={name} onText={find} />
        </search>
      )}
      {!data && !error && <Loading />}
      {data?.organizations.length === 0 && <p class="panel empty">{name === '' ? words.none : texts.nothingFound}</p>}
      {data && data.organizations.length > 0 && (
        <div class="panel tree" aria-busy={loading}>
          <Branches branches={branches} of={null} isWhole={data.more === 0} drop={drop} start={start} />
        </div>
      )}
      {data && data.more > 0 && (
        <p class="pager">
          <span>{words.notShown(data.more)}</span>
          <Button
            label={loading ? texts.working : words.showMore(Math.min(step, data.more))}
            idle={loading}
            onClick={() => setShown(String(wanted + step))}
          />
        </p>
      )}
      {dialog}
    </Page>
  );
}

const move = async (of: Organization, parentId: string | null) => {
  await change('organization', of, { parentId });
  return { said: words.moved(of.name) };
};

const parent = { name: 'parentId', label: words.parent, pick: 'organization', none: words.top } as const;

const making = (above?: string) =>
  creating(words.new, {
    values: { parentId: above },
    fields: () => [{ name: 'name', label: texts.name, required: true }, parent],
    save: async ({ name = '', parentId }) => {
      await make('organization', { name, parentId });
    },
  });

function verbsOf(of: Organization): Verbs {
  const save = ({ parentId = null }: Record<string, string | null>) => move(of, parentId);
  return [
    can('create', 'organization') && { ...making(of.id), text: words.newBelow },
    can('update', 'organization') && {
      text: words.move,
      form: { title: words.moveOf(of.name), verb: texts.move, fields: () => [parent], save },
    },
    can('delete', 'organization') && deletion('organization', of, words.deleteSays),
  ];
}

/** What is in an organization and below it, and the people of its own. */
export function Holds({ of: { id, counts }, online = 0 }: { of: Organization; online?: number }) {
  if (!counts) return null;
  return (
    <span class="holds small soft">
      <Link href={`/devices?organization=${id}`}>{texts.counts.devices(counts.devicesBelow)}</Link>
      {online > 0 && <span>{texts.counts.online(online)}</span>}
      {counts.people > 0 && <span>{texts.counts.people(counts.people)}</span>}
    </span>
  );
}

function onlineIn({ id, onlineCount = 0 }: Organization, branches: ReadonlyMap<string | null, Organization[]>): number {
  return (branches.get(id) ?? []).reduce((sum, one) => sum + onlineIn(one, branches), onlineCount);
}

function Branches({
  branches,
  of,
  isWhole,
  drop,
  start,
}: {
  branches: ReadonlyMap<string | null, Organization[]>;
  of: string | null;
  /** Whether all organizations have been read. */
  isWhole: boolean;
  drop: (one: Organization, parentId: string) => void;
  start: Start;
}) {
  const here = branches.get(of) ?? [];
  const [over, setOver] = useState<string>();
  if (here.length === 0) return null;
  const take = (event: DragEvent, to: Organization) => {
    event.preventDefault();
    setOver(undefined);
    const id = event.dataTransfer?.getData('text/plain');
    const dragged = [...branches.values()].flat().find((one) => one.id === id);
    if (dragged && dragged.id !== to.id) drop(dragged, to.id);
  };
  const mayMove = can('update', 'organization');
  return (
    <ul>
      {here.map((one) => (
        <li key={one.id}>
          {/* biome-ignore lint/a11y/noStaticElementInteractions: the button "Move to …" does the same by keyboard */}
          <div
            class={over === one.id ? 'leaf over' : 'leaf'}
            draggable={mayMove}
            onDragStart={(event) => event.dataTransfer?.setData('text/plain', one.id)}
            onDragOver={(event) => {
              event.preventDefault();
              setOver(one.id);
            }}
            onDragLeave={() => setOver(undefined)}
            onDrop={(event) => take(event, one)}
          >
            <Link class="name grow" draggable={false} href={`/organizations/${one.id}`}>
              {one.name}
            </Link>
            <Holds of={one} online={isWhole ? onlineIn(one, branches) : 0} />
            <Menu label={texts.actionsOf(one.name)} items={itemsOf(verbsOf(one), start)} />
          </div>
          <Branches branches={branches} of={one.id} isWhole={isWhole} drop={drop} start={start} />
        </li>
      ))}
    </ul>
  );
}
