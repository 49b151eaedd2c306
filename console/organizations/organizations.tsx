/** The tree of organizations: made, moved by dragging or by a dialog, deleted to the trash. */
import { useMemo, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useAction } from '../app/actions.ts';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { Button, ErrorNote, Field, Form, type Values } from '../parts/form.tsx';
import { useParam } from '../parts/lists/param.ts';
import { SearchField } from '../parts/lists/search-field.tsx';
import { useLoad } from '../parts/load.ts';
import { Menu } from '../parts/menu.tsx';
import { Loading, Page } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { branchesOf, type Organization, readTree } from './tree.ts';

const words = texts.organizations;
/** From so many on the tree has a search. */
const searchedFrom = 30;
/** How many are shown at first, and how many more each time. */
const step = 1000;

type Open = { kind: 'new' | 'move' | 'delete'; of: Organization | undefined } | undefined;

export function Organizations() {
  const [name, find] = useParam('q');
  const [shown, setShown] = useParam('shown');
  const wanted = Math.max(step, Number(shown) || 0);
  const { data, error, loading, reload } = useLoad((signal) => readTree(wanted, name, signal), [wanted, name]);
  const branches = useMemo(() => branchesOf(data?.organizations ?? []), [data]);
  const isMany = name !== '' || (data !== undefined && data.organizations.length + data.more > searchedFrom);
  const [open, setOpen] = useState<Open>();
  useAction('newOrganization', () => setOpen({ kind: 'new', of: undefined }));
  const close = () => setOpen(undefined);
  const move = async ({ id, version, name }: Organization, parentId: string | null) => {
    const params = { path: { id }, header: { etag: version } };
    await unwrap(api.PUT('/api/v1/organizations/{id}', { params, body: { parentId } }));
    toast(words.moved(name));
    reload();
  };
  const make = async ({ name = '', parentId }: Values) => {
    await unwrap(
      api.POST('/api/v1/organizations', { body: { accountId: accountId.value, name, ...(parentId && { parentId }) } }),
    );
    reload();
    close();
  };
  const remove = async ({ id, version, name }: Organization) => {
    const { organization } = await unwrap(
      api.DELETE('/api/v1/organizations/{id}', { params: { path: { id }, header: { etag: version } } }),
    );
    reload();
    const gone = { path: { id }, header: { etag: organization.version } };
    toast(words.deleted(name), () => unwrap(api.POST('/api/v1/trash/organizations/{id}/recover', { params: gone })));
  };
  return (
    <Page
      title={texts.places.organizations}
      trash="organizations"
      actions={
        can('create', 'organization') && (
          <button type="button" class="primary" onClick={() => setOpen({ kind: 'new', of: undefined })}>
            {words.new}
          </button>
        )
      }
    >
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
          <Branches branches={branches} of={null} move={(one, to) => move(one, to).catch(failed)} onOpen={setOpen} />
        </div>
      )}
      {data && data.more > 0 && (
        <p class="pager">
          <span>{words.notShown(data.more)}</span>
          <Button idle={loading} onClick={() => setShown(String(wanted + step))}>
            {loading ? texts.working : words.showMore(Math.min(step, data.more))}
          </Button>
        </p>
      )}
      {open && <Opened {...open} make={make} move={move} remove={remove} onClose={close} />}
    </Page>
  );
}

/** The dialog that is open. */
function Opened({
  kind,
  of,
  make,
  move,
  remove,
  onClose,
}: NonNullable<Open> & {
  make: (values: Values) => Promise<void>;
  move: (of: Organization, parentId: string | null) => Promise<void>;
  remove: (of: Organization) => Promise<void>;
  onClose: () => void;
}) {
  return (
    <>
      {kind === 'new' && (
        <Dialog title={words.new} onClose={onClose}>
          <Form save={make} verb={texts.create} onCancel={onClose}>
            <Field label={texts.name} name="name" required />
            <Picker kind="organization" label={words.parent} name="parentId" none={words.top} value={of?.id} />
          </Form>
        </Dialog>
      )}
      {kind === 'move' && of && (
        <Dialog title={words.moveOf(of.name)} onClose={onClose}>
          <Form
            save={async ({ parentId }) => {
              await move(of, parentId ?? null);
              onClose();
            }}
            verb={texts.move}
            onCancel={onClose}
          >
            <Picker kind="organization" label={words.parent} name="parentId" none={words.top} />
          </Form>
        </Dialog>
      )}
      {kind === 'delete' && of && (
        <Confirm
          title={words.deleteOf(of.name)}
          says={words.deleteSays}
          verb={texts.delete}
          run={() => remove(of)}
          onClose={onClose}
        />
      )}
    </>
  );
}

/** What is in an organization, without those below it. */
function Holds({ of: { id, deviceCount = 0, onlineCount = 0, endUserCount = 0 } }: { of: Organization }) {
  return (
    <span class="holds small soft">
      <Link href={`/devices?organization=${id}`}>{texts.counts.devices(deviceCount)}</Link>
      {onlineCount > 0 && <span>{texts.counts.online(onlineCount)}</span>}
      {endUserCount > 0 && <span>{texts.counts.people(endUserCount)}</span>}
    </span>
  );
}

function Branches({
  branches,
  of,
  move,
  onOpen,
}: {
  branches: ReadonlyMap<string | null, Organization[]>;
  of: string | null;
  move: (one: Organization, parentId: string | null) => void;
  onOpen: (open: Open) => void;
}) {
  const here = branches.get(of) ?? [];
  const [over, setOver] = useState<string>();
  if (here.length === 0) return null;
  const drop = (event: DragEvent, to: Organization) => {
    event.preventDefault();
    setOver(undefined);
    const id = event.dataTransfer?.getData('text/plain');
    const dragged = [...branches.values()].flat().find((one) => one.id === id);
    if (dragged && dragged.id !== to.id) move(dragged, to.id);
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
            onDrop={(event) => drop(event, one)}
          >
            <Link class="name" draggable={false} href={`/organizations/${one.id}`}>
              {one.name}
            </Link>
            <Holds of={one} />
            <Menu
              label={texts.actionsOf(one.name)}
              items={[
                can('create', 'organization') && { text: words.newBelow, run: () => onOpen({ kind: 'new', of: one }) },
                mayMove && { text: words.move, run: () => onOpen({ kind: 'move', of: one }) },
                can('delete', 'organization') && {
                  text: texts.delete,
                  run: () => onOpen({ kind: 'delete', of: one }),
                  danger: true,
                },
              ]}
            />
          </div>
          <Branches branches={branches} of={one.id} move={move} onOpen={onOpen} />
        </li>
      ))}
    </ul>
  );
}
