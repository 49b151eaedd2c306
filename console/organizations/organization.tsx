/** One organization: its name and description, the people in it, and its devices. */
import { useMemo } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { change, readList, readOne } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { EntityPart } from '../parts/entity-page.tsx';
import { Fields } from '../parts/fields.tsx';
import { Form, type Values } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge, Page, Waiting } from '../parts/page.tsx';
import { toast } from '../parts/toast.tsx';
import { endUsers } from '../people/people.tsx';
import { texts } from '../texts.ts';

const words = texts.organizations;
const shownDevices = 10;
const about = () => [
  { name: 'name', label: texts.name, required: true },
  { name: 'description', label: words.description },
];

async function readOrganization(id: string) {
  const [organization, devices] = await Promise.all([
    readOne('organization', id),
    readList('device', 1, { organizationId: id, pageSize: shownDevices, sortBy: 'serialNumber' }),
  ]);
  return { organization, devices };
}

export function Organization({ id }: { id: string }) {
  const { data, error, reload } = useLoad(() => readOrganization(id), [id]);
  const people = useMemo(() => endUsers(id), [id]);
  if (!data) return <Waiting title={words.one} error={error} trash="organizations" />;
  const { organization, devices } = data;
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
      <div class="grid">
        {can('update', 'organization') && (
          <section class="panel">
            <h2>{words.about}</h2>
            <Form key={organization.version} save={save} verb={texts.save}>
              <Fields of={about} values={organization} />
            </Form>
          </section>
        )}
        <section class="panel">
          <h2>{words.devicesOf(devices.meta?.count ?? 0)}</h2>
          {devices.results?.length === 0 && <p class="soft">{words.noDevices}</p>}
          <ul class="plainlist">
            {devices.results?.map(({ id, serialNumber, connected }) => (
              <li key={id}>
                <Link href={`/devices/${id}`}>{serialNumber}</Link>
                <Badge kind={connected ? 'good' : undefined} text={connected ? texts.online : texts.offlineShort} />
              </li>
            ))}
          </ul>
        </section>
      </div>
      {can('read', 'endUser') && <EntityPart of={people} heading={words.people} />}
    </Page>
  );
}
