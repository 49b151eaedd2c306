/** What a group has refused, and the devices that it has made. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { can } from '../app/session.ts';
import { Ago } from '../parts/ago.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { Badge, Time } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';

const words = texts.enrollment;

export function Refusals({ id }: { id: string }) {
  return (
    <Listing
      label={words.refusals}
      param="refusals"
      every={5000}
      newestFirst
      load={async (page) => {
        const params = { path: { id }, query: { page, pageSize } };
        const { refusals } = await unwrap(api.GET('/api/v1/enrollment-groups/{id}/refusals', { params }));
        const results = refusals.results?.map((one, at) => ({ ...one, id: `${one.time} ${at}` })) ?? [];
        return { ...refusals, results };
      }}
      columns={[
        { name: 'time', label: texts.time, show: ({ time }) => <Ago iso={time} /> },
        {
          name: 'serialNumber',
          label: texts.devices.serialNumber,
          wrap: true,
          show: ({ serialNumber }) => serialNumber ?? <span class="soft">–</span>,
        },
        { name: 'reason', label: texts.device.reason, wrap: true, show: ({ reason }) => reason },
        {
          name: 'proven',
          label: words.hadProof,
          show: ({ proven }) => <Badge kind={proven ? undefined : 'warn'} text={proven ? texts.yes : texts.no} />,
        },
        { name: 'address', label: words.address, show: ({ address }) => <code>{address ?? '–'}</code> },
      ]}
      empty={<p>{words.noRefusals}</p>}
    />
  );
}

/** `count` is read again with the group: a device more is a list more. */
export function Enrolled({ id, count }: { id: string; count: number }) {
  const [round, setRound] = useState(0);
  const allow = async (deviceId: string) => {
    await unwrap(api.POST('/api/v1/devices/{id}/allow-enrollment', { params: { path: { id: deviceId } } }));
    toast(words.allowed);
    setRound(round + 1);
  };
  return (
    <Listing
      label={words.made}
      on={[count, round]}
      load={async (page) => {
        const params = { path: { id }, query: { page, pageSize } };
        const { devices } = await unwrap(api.GET('/api/v1/enrollment-groups/{id}/devices', { params }));
        return { ...devices, results: devices.results?.map((one) => ({ ...one, id: one.deviceId })) ?? [] };
      }}
      nameOf={({ serialNumber }) => serialNumber}
      href={({ deviceId }) => `/devices/${deviceId}`}
      columns={[
        { name: 'serialNumber', label: texts.devices.serialNumber, show: ({ serialNumber }) => serialNumber },
        { name: 'enrolled', label: words.enrolledAt, show: ({ enrolled }) => <Ago iso={enrolled} /> },
        {
          name: 'connected',
          label: words.firstConnected,
          show: ({ connected }) => (connected ? <Ago iso={connected} /> : <span class="soft">{texts.never}</span>),
        },
        {
          name: 'allowedUntil',
          label: words.allowedUntil,
          show: ({ allowedUntil }) =>
            allowedUntil && Date.parse(allowedUntil) > Date.now() ? (
              <Time iso={allowedUntil} />
            ) : (
              <span class="soft">–</span>
            ),
        },
      ]}
      actions={
        can('update', 'enrollmentGroup')
          ? ({ deviceId }) => [{ text: words.allow, run: () => void allow(deviceId).catch(failed) }]
          : undefined
      }
      empty={<p>{words.noneMade}</p>}
    />
  );
}
