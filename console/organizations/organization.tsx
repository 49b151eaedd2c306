/** One organization: its name and description, the people in it, and its devices. */
import { useMemo } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { change, pageSize, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { toast } from '../parts/dialogs/toast.tsx';
import { Fields } from '../parts/forms/fields.tsx';
import { Form, type Values } from '../parts/forms/form.tsx';
import { EntityPart } from '../parts/lists/entity-page.tsx';
import { Online, Page, Panel, Waiting } from '../parts/page/page.tsx';
import { endUsers } from '../people/people.tsx';
import { texts } from '../texts.ts';
import { Holds } from './organizations.tsx';
import { type Organization as Node, readAbove } from './tree.ts';

const words = texts.organizations;
const shownDevices = 10;
const about = () => [
  { name: 'name', label: texts.name, required: true },
  { name: 'description', label: texts.description },
];

async function readOrganization(id: string, signal: AbortSignal) {
  const below = { organizationId: id, below: true };
  const params = { path: { id }, query: { counts: true } };
  const [{ organization }, devices, online, children] = await Promise.all([
    unwrap(api.GET('/api/v1/organizations/{id}', { params, signal })),
    readList('device', 1, {
      ...below,
      pageSize: shownDevices,
      sortBy: 'serialNumber',
      fields: 'serialNumber,connected',
    }),
    readList('device', 1, { ...below, connected: true, results: false }),
    readList('organization', 1, { parentId: id, counts: true, sortBy: 'name', fields: 'name,parentId,version,counts' }),
  ]);
  return {
    organization,
    devices,
    online: online.meta?.count ?? 0,
    children,
    path: await readPath(organization, signal),
  };
}

/** The organizations above one, from the top down, as far as they are in reach. */
async function readPath(of: Node, signal: AbortSignal): Promise<Node[]> {
  const all = new Map([[of.id, of]]);
  await readAbove(all, signal);
  const path: Node[] = [];
  for (let one = all.get(of.parentId ?? ''); one; one = all.get(one.parentId ?? '')) path.unshift(one);
  return path;
}

export function Organization({ id }: { id: string }) {
  const { data, error, reload } = useLoad((signal) => readOrganization(id, signal), [id]);
  const people = useMemo(() => endUsers(id), [id]);
  if (!data) return <Waiting title={texts.organization} error={error} trash="organizations" />;
  const { organization, devices, online, children, path } = data;
  const { counts } = organization;
  const childCount = children.meta?.count ?? 0;
  const save = async ({ name = '', description = null }: { name?: string; description?: string | null } & Values) => {
    await change('organization', organization, { name, description });
    toast(texts.saved);
    reload();
  };
  return (
    <Page
      title={organization.name}
      actions={
        <Link class="button" href={`/devices?organization=${id}`}>
          {words.allDevices}
        </Link>
      }
    >
      {path.length > 0 && (
        <nav class="path small" aria-label={words.path}>
          {path.map(({ id, name }) => (
            <Link key={id} href={`/organizations/${id}`}>
              {name}
            </Link>
          ))}
          <span aria-current="page">{organization.name}</span>
        </nav>
      )}
      <div class="grid">
        {can('update', 'organization') && (
          <Panel title={texts.about}>
            <Form key={organization.version} save={save} verb={texts.save}>
              <Fields of={about} values={organization} />
            </Form>
          </Panel>
        )}
        <Panel title={words.devicesOf(devices.meta?.count ?? 0)}>
          <p class="soft small">
            {devices.results?.length === 0 ? words.noDevices : words.devicesSay(counts?.devices ?? 0, online)}
          </p>
          <ul class="plainlist">
            {devices.results?.map(({ id, serialNumber, connected }) => (
              <li key={id}>
                <Link href={`/devices/${id}`}>{serialNumber}</Link>
                <Online is={connected} />
              </li>
            ))}
          </ul>
        </Panel>
        <Panel title={words.belowOf(counts?.organizationsBelow ?? 0)}>
          {childCount === 0 && <p class="soft">{words.noneBelow}</p>}
          <ul class="plainlist">
            {children.results?.map((one) => (
              <li key={one.id}>
                <Link href={`/organizations/${one.id}`}>{one.name}</Link>
                <Holds of={one} />
              </li>
            ))}
          </ul>
          {childCount > pageSize && <p class="soft small">{words.notShown(childCount - pageSize)}</p>}
        </Panel>
      </div>
      {can('read', 'endUser') && <EntityPart of={people} heading={texts.places.people} />}
    </Page>
  );
}
