/** The product and the organization of a device. */
import { Link } from 'wouter-preact';
import { nameOf } from '../parts/data/names.tsx';
import type { DeviceRow } from './row.ts';

export function Where({ device: { deviceTemplateId, organizationId } }: { device: DeviceRow }) {
  const product = nameOf('deviceTemplate', deviceTemplateId);
  const organization = organizationId === null ? undefined : nameOf('organization', organizationId);
  return (
    <>
      {product && <Link href={`/products/${deviceTemplateId}`}>{product}</Link>}
      {organization && <Link href={`/organizations/${organizationId}`}>{organization}</Link>}
    </>
  );
}
