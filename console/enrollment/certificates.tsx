/** Certificates of devices, those that end soon first, and how one is ended. */
import { useState } from 'preact/hooks';
import { Link, useSearchParams } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { Confirm } from '../parts/dialog.tsx';
import { Select } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { NameOf, nameOf } from '../parts/names.tsx';
import { Badge, Time } from '../parts/page.tsx';
import { toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { endsSoon } from './read.ts';

const words = texts.enrollment;
const day = 86_400_000;

async function readCertificates(page: number, days: string) {
  const soon = days ? { expiresBefore: new Date(Date.now() + Number(days) * day).toISOString() } : {};
  const query = { accountId: accountId.value, page, pageSize, sortBy: 'validTo' as const, ...soon };
  return (await unwrap(api.GET('/api/v1/access/mqtt-certificates', { params: { query } }))).mqttCertificates;
}
type Certificate = NonNullable<Awaited<ReturnType<typeof readCertificates>>['results']>[number];

export function Ends({ validTo }: { validTo: string }) {
  const kind = endsSoon(validTo);
  return (
    <span class="row">
      <Time iso={validTo} />
      {kind && <Badge kind={kind} text={kind === 'bad' ? words.hasEnded : words.endsSoon} />}
    </span>
  );
}

export function Certificates() {
  const [search, setSearch] = useSearchParams();
  const [ending, setEnding] = useState<Certificate>();
  const [round, setRound] = useState(0);
  const days = search.get('days') ?? '';
  const end = async ({ id, version }: Certificate) => {
    const params = { path: { id }, header: { etag: version } };
    await unwrap(api.DELETE('/api/v1/access/mqtt-certificates/{id}', { params }));
    toast(words.ended);
    setRound(round + 1);
  };
  const deviceOf = ({ entityId }: Certificate) => nameOf('device', entityId) || entityId;
  return (
    <>
      <div class="toolbar">
        <Select
          label={words.ends}
          value={days}
          options={words.endsWithin}
          onText={(text) => setSearch(text ? { days: text } : {})}
        />
      </div>
      <Listing
        label={words.tabs.certificates}
        on={[round, days]}
        load={(page) => readCertificates(page, days)}
        nameOf={deviceOf}
        columns={[
          {
            name: 'device',
            label: words.device,
            show: ({ entityId }) => (
              <Link href={`/devices/${entityId}/access`}>
                <NameOf kind="device" id={entityId} otherwise={<code>{entityId}</code>} />
              </Link>
            ),
          },
          { name: 'ends', label: words.ends, show: ({ validTo }) => <Ends validTo={validTo} /> },
          {
            name: 'issuer',
            label: words.issuedBy,
            show: ({ certificateAuthorityId }) =>
              certificateAuthorityId ? (
                <NameOf kind="certificateAuthority" id={certificateAuthorityId} />
              ) : (
                words.registered
              ),
          },
          {
            name: 'serialNumber',
            label: words.certificateNumber,
            wrap: true,
            show: ({ serialNumber }) => <code class="small">{serialNumber ?? '–'}</code>,
          },
        ]}
        actions={
          can('delete', 'mqttCertificate')
            ? (one) => [{ text: words.end, run: () => setEnding(one), danger: true }]
            : () => []
        }
        empty={<p>{words.noCertificates}</p>}
      />
      {ending && (
        <Confirm
          title={words.endOf(deviceOf(ending))}
          says={words.endSays}
          verb={words.end}
          run={() => end(ending)}
          onClose={() => setEnding(undefined)}
        />
      )}
    </>
  );
}
