/** The product and the organization of a device. */
import { Link } from 'wouter-preact';
import { can } from '../app/session.js';
import { useLoad } from '../parts/load.js';
import { readOrganizations, readProducts } from '../parts/picker.js';
import type { DeviceRow } from './row.js';

async function readNames({ deviceTemplateId, organizationId }: DeviceRow) {
  const [products, organizations] = await Promise.all([
    can('read', 'deviceTemplate') ? readProducts() : [],
    can('read', 'organization') && organizationId !== null ? readOrganizations() : [],
  ]);
  return {
    product: products.find(({ id }) => id === deviceTemplateId)?.name,
    organization: organizations.find(({ id }) => id === organizationId)?.name,
  };
}

export function Where({ device }: { device: DeviceRow }) {
  const { deviceTemplateId, organizationId } = device;
  const { data } = useLoad(() => readNames(device), [deviceTemplateId, organizationId]);
  return (
    <>
      {data?.product && <Link href={`/products/${deviceTemplateId}`}>{data.product}</Link>}
      {data?.organization && <Link href={`/organizations/${organizationId}`}>{data.organization}</Link>}
    </>
  );
}
