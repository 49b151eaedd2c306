/** What a group has refused, and the devices that it has made. */
import { api, unwrap } from '../app/api.ts';
import { pageSize } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { Ago } from '../parts/formats/ago.tsx';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { Badge, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';

const words = texts.enrollment;
const dash = <span class="soft">–</span>;
/** Milliseconds. */
const liveEvery = 5000;

async function readRefusals(id: string, page: number) {
  const params = { path: { id }, query: { page, pageSize } };
  const { refusals } = await unwrap(api.GET('/api/v1/enrollment-groups/{id}/refusals', { params }));
  return { ...refusals, results: refusals.results?.map((one, at) => ({ ...one, id: `${one.time} ${at}` })) ?? [] };
}
type Refusal = Awaited<ReturnType<typeof readRefusals>>['results'][number];

export const refusalsOf = (group: string): EntityList<Refusal> => ({
  label: words.refusals,
  kind: 'enrollmentGroup',
  param: 'refusals',
  empty: texts.noRefusals,
  every: liveEvery,
  newestFirst: true,
  load: (page) => readRefusals(group, page),
  columns: [
    { name: 'time', label: texts.time, show: ({ time }) => <Ago iso={time} /> },
    {
      name: 'serialNumber',
      label: texts.serialNumber,
      wrap: true,
      show: ({ serialNumber }) => serialNumber ?? dash,
    },
    { name: 'reason', label: texts.reason, wrap: true, show: ({ reason }) => reason },
    {
      name: 'proven',
      label: words.hadProof,
      show: ({ proven }) => <Badge kind={proven ? undefined : 'warn'} text={proven ? texts.yes : texts.no} />,
    },
    { name: 'address', label: texts.address, show: ({ address }) => <code>{address ?? '–'}</code> },
  ],
});

async function readEnrolled(id: string, page: number) {
  const params = { path: { id }, query: { page, pageSize } };
  const { devices } = await unwrap(api.GET('/api/v1/enrollment-groups/{id}/devices', { params }));
  return { ...devices, results: devices.results?.map((one) => ({ ...one, id: one.deviceId })) ?? [] };
}
type Enrolled = Awaited<ReturnType<typeof readEnrolled>>['results'][number];

export const enrolledIn = (group: string): EntityList<Enrolled> => ({
  label: words.made,
  kind: 'enrollmentGroup',
  empty: words.noneMade,
  every: liveEvery,
  load: (page) => readEnrolled(group, page),
  nameOf: ({ serialNumber }) => serialNumber,
  href: ({ deviceId }) => `/devices/${deviceId}`,
  columns: [
    { name: 'serialNumber', label: texts.serialNumber, show: ({ serialNumber }) => serialNumber },
    { name: 'enrolled', label: texts.enrollment.enrolled, show: ({ enrolled }) => <Ago iso={enrolled} /> },
    {
      name: 'connected',
      label: words.firstConnected,
      show: ({ connected }) => (connected ? <Ago iso={connected} /> : <span class="soft">{texts.never}</span>),
    },
    {
      name: 'allowedUntil',
      label: words.allowedUntil,
      show: ({ allowedUntil: until }) => (until && Date.parse(until) > Date.now() ? <Time iso={until} /> : dash),
    },
  ],
  verbs: ({ deviceId }) => [can('update', 'enrollmentGroup') && { text: words.allow, run: () => allow(deviceId) }],
});

async function allow(id: string) {
  await unwrap(api.POST('/api/v1/devices/{id}/allow-enrollment', { params: { path: { id } } }));
  return { said: words.allowed };
}
