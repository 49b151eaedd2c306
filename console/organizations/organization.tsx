/** One organization: its name and description, the people in it, and its devices. */
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Field, Form, type Values } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge, Page, Waiting } from '../parts/page.tsx';
import { toast } from '../parts/toast.tsx';
import { PeopleOf } from '../people/people-of.tsx';
import { texts } from '../texts.ts';

const words = texts.organizations;
const shownDevices = 10;

async function readOrganization(id: string) {
  const { organization } = await unwrap(api.GET('/api/v1/organizations/{id}', { params: { path: { id } } }));
  const query = {
    accountId: accountId.value,
    organizationId: id,
    pageSize: shownDevices,
    sortBy: 'serialNumber',
  } as const;
  const { devices } = await unwrap(api.GET('/api/v1/devices', { params: { query } }));
  return { organization, devices };
}

export function Organization({ id }: { id: string }) {
  const { data, error, reload } = useLoad(() => readOrganization(id), [id]);
  if (!data) return <Waiting title={words.one} error={error} trash="organizations" />;
  const { organization, devices } = data;
  const save = async ({ name = '', description = null }: { name?: string; description?: string | null } & Values) => {
    const params = { path: { id }, header: { etag: organization.version } };
    await unwrap(api.PUT('/api/v1/organizations/{id}', { params, body: { name, description } }));
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
              <Field label={texts.name} name="name" required defaultValue={organization.name} />
              <Field label={words.description} name="description" defaultValue={organization.description ?? ''} />
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
      {can('read', 'endUser') && (
        <section>
          <h2>{words.people}</h2>
          <PeopleOf organizationId={id} />
        </section>
      )}
    </Page>
  );
}
