/** The records of a device: its log, refusals, and changes. */
import { Link } from 'wouter-preact';
import { auditColumns } from '../../account/audit.tsx';
import { api, unwrap } from '../../app/api.ts';
import { useLoad } from '../../parts/data/load.ts';
import { Ago } from '../../parts/formats/ago.tsx';
import { Listing, pageSize } from '../../parts/lists/listing.tsx';
import { Badge, Time } from '../../parts/page/page.tsx';
import { texts } from '../../texts.ts';
import { missingChannel, reasonOf } from './refused.tsx';

const words = texts.device;
const isBad = (severity: string) => ['emergency', 'alert', 'critical', 'error'].includes(severity);

export function Log({ id }: { id: string }) {
  return (
    <Listing
      label={words.tabs.log}
      every={5000}
      newestFirst
      load={async (page) =>
        (await unwrap(api.GET('/api/v1/devices/{id}/logs', { params: { path: { id }, query: { page, pageSize } } })))
          .logs
      }
      columns={[
        { name: 'time', label: texts.time, show: ({ sourceTimestamp }) => <Time iso={sourceTimestamp} /> },
        {
          name: 'severity',
          label: words.severity,
          show: ({ severity }) => <Severity of={severity} />,
        },
        { name: 'message', label: texts.message, wrap: true, show: ({ message }) => message },
      ]}
      empty={<p>{words.noLog}</p>}
    />
  );
}

export function Severity({ of: severity }: { of: string }) {
  const kind = isBad(severity) ? 'bad' : severity === 'warn' ? 'warn' : undefined;
  return <Badge kind={kind} text={words.severities[severity] ?? severity} />;
}

/** The newest lines of the log. */
export function Lately({ id }: { id: string }) {
  const query = { pageSize: 5 };
  const { data } = useLoad(
    async () =>
      (await unwrap(api.GET('/api/v1/devices/{id}/logs', { params: { path: { id }, query } }))).logs.results ?? [],
    [id],
    15_000,
  );
  if (!data?.length) return null;
  return (
    <section class="panel">
      <div class="row heading apart">
        <h2>{words.lately}</h2>
        <Link class="small" href={`/devices/${id}/log`}>
          {words.wholeLog}
        </Link>
      </div>
      <ul class="plainlist">
        {data.map((one) => (
          <li key={one.id}>
            <span class="row">
              <Severity of={one.severity} />
              {one.message}
            </span>
            <span class="small soft">
              <Ago iso={one.sourceTimestamp} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Refusals({ id }: { id: string }) {
  return (
    <Listing
      label={words.tabs.refusals}
      every={5000}
      newestFirst
      load={async (page) => {
        const query = { page, pageSize };
        const { refusals } = await unwrap(
          api.GET('/api/v1/devices/{id}/refusals', { params: { path: { id }, query } }),
        );
        const results = refusals.results?.map((one, place) => ({ ...one, id: `${one.time}${place}` })) ?? [];
        return { results, ...(refusals.meta && { meta: refusals.meta }) };
      }}
      columns={[
        { name: 'time', label: texts.time, show: ({ time }) => <Time iso={time} /> },
        {
          name: 'action',
          label: texts.action,
          show: ({ action }) => <Badge kind="bad" text={words.refused[action]} />,
        },
        { name: 'reason', label: texts.reason, wrap: true, show: (one) => reasonOf(one, id) },
        {
          name: 'do',
          label: words.whatToDo,
          wrap: true,
          show: (one) => (missingChannel(one, id) ? texts.refused.channelAdvice : words.advice[one.action]),
        },
        { name: 'topic', label: words.topic, wrap: true, show: ({ topic }) => <code>{topic}</code> },
      ]}
      empty={<p>{texts.noRefusals}</p>}
    />
  );
}

export function History({ id, accountId }: { id: string; accountId: string }) {
  return (
    <Listing
      label={words.tabs.history}
      load={async (page) => {
        const query = { accountId, targetId: id, page, pageSize };
        return (await unwrap(api.GET('/api/v1/audit', { params: { query } }))).auditRecords;
      }}
      columns={auditColumns.filter(({ name }) => name !== 'target')}
      empty={<p>{words.noHistory}</p>}
    />
  );
}
