/** Certificates of devices, those that end soon first, and how one is ended. */
import { type Entity, readList, remove } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { NameLink, NameOf, nameOf } from '../parts/data/names.tsx';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { Badge, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { endsSoon } from './read.ts';

const words = texts.enrollment;
type Certificate = Entity<'mqttCertificate'>;
const day = 86_400_000;
const deviceOf = ({ entityId }: Certificate) => nameOf('device', entityId) || entityId;

export function Ends({ validTo }: { validTo: string }) {
  const kind = endsSoon(validTo);
  return (
    <span class="row">
      <Time iso={validTo} />
      {kind && <Badge kind={kind} text={kind === 'bad' ? words.hasEnded : words.endsSoon} />}
    </span>
  );
}

export const certificates: EntityList<Certificate> = {
  label: words.tabs.certificates,
  kind: 'mqttCertificate',
  empty: words.noCertificates,
  filters: [{ name: 'days', label: words.ends, options: words.endsWithin }],
  load: (page, { days }) => {
    const expiresBefore = days ? new Date(Date.now() + Number(days) * day).toISOString() : undefined;
    return readList('mqttCertificate', page, { sortBy: 'validTo', expiresBefore });
  },
  columns: [
    {
      name: 'device',
      label: texts.device.one,
      show: ({ entityId }) => <NameLink kind="device" id={entityId} part="/access" />,
    },
    { name: 'ends', label: words.ends, show: ({ validTo }) => <Ends validTo={validTo} /> },
    {
      name: 'issuer',
      label: words.issuedBy,
      show: ({ certificateAuthorityId: id }) =>
        id ? <NameOf kind="certificateAuthority" id={id} /> : words.registered,
    },
    {
      name: 'serialNumber',
      label: words.certificateNumber,
      wrap: true,
      show: ({ serialNumber }) => <code class="small">{serialNumber ?? '–'}</code>,
    },
  ],
  nameOf: deviceOf,
  verbs: (of) => [
    can('delete', 'mqttCertificate') && {
      text: words.end,
      kind: 'danger',
      ask: { title: words.endOf(deviceOf(of)), says: words.endSays },
      run: async () => {
        await remove('mqttCertificate', of);
        return { said: words.ended };
      },
    },
  ],
};
