/** Lists that only Home leads to: refusals of all devices by their cause, and certificates that end soon. */
import { Link, useSearchParams } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { readList } from '../app/entities.ts';
import { accountId } from '../app/session.ts';
import { reasonOf } from '../device/records/refused.tsx';
import { NameLink } from '../parts/data/names.tsx';
import { Ago } from '../parts/formats/ago.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Badge, Page, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';

const words = texts.home;
const day = 24 * 3_600_000;

export function HomeList({ list }: { list: string }) {
  return (
    <Page
      title={list === 'certificates' ? words.certificates : words.refusals}
      actions={
        <Link class="button" href="/home">
          {texts.places.home}
        </Link>
      }
    >
      {list === 'certificates' ? <Certificates /> : <Refusals />}
    </Page>
  );
}

function Refusals() {
  const [search] = useSearchParams();
  const cause = search.get('cause') ?? '';
  return (
    <Listing
      label={words.refusals}
      on={[cause]}
      every={10_000}
      load={async (page) => {
        const from = new Date(Date.now() - day).toISOString();
        const query = { accountId: accountId.value, page, pageSize, from, ...(cause && { cause }) };
        const { refusals } = await unwrap(api.GET('/api/v1/refusals', { params: { query } }));
        const results = refusals.results?.map((one, at) => ({ ...one, id: `${one.time}${at}` })) ?? [];
        return { results, ...(refusals.meta && { meta: refusals.meta }) };
      }}
      columns={[
        { name: 'device', label: texts.device.one, show: ({ deviceId }) => <NameLink kind="device" id={deviceId} /> },
        { name: 'time', label: texts.time, show: ({ time }) => <Ago iso={time} /> },
        {
          name: 'action',
          label: texts.action,
          show: ({ action }) => <Badge kind="bad" text={texts.device.refused[action]} />,
        },
        { name: 'reason', label: texts.reason, wrap: true, show: (one) => reasonOf(one, one.deviceId) },
        {
          name: 'channel',
          label: texts.channel,
          wrap: true,
          show: ({ topic, deviceId }) => topic && <code>{topic.split(`/d/${deviceId}/`)[1] ?? topic}</code>,
        },
      ]}
      empty={<p>{texts.noRefusals}</p>}
    />
  );
}

function Certificates() {
  const [search] = useSearchParams();
  const expiresBefore = search.get('expiresBefore') ?? new Date(Date.now() + 30 * day).toISOString();
  return (
    <Listing
      label={words.certificates}
      on={[expiresBefore]}
      load={(page) => readList('mqttCertificate', page, { expiresBefore })}
      columns={[
        { name: 'device', label: texts.device.one, show: ({ entityId }) => <NameLink kind="device" id={entityId} /> },
        { name: 'ends', label: texts.validUntil, show: ({ validTo }) => <Time iso={validTo} /> },
        { name: 'subject', label: texts.device.subject, wrap: true, show: ({ subject }) => subject },
      ]}
      empty={<p>{texts.device.noCertificates}</p>}
    />
  );
}
