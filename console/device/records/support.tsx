/** Requests for support with a device that are open, with what had happened to it in the day before. */
import { api, unwrap } from '../../app/api.ts';
import { useLoad } from '../../parts/data/load.ts';
import { NameOf } from '../../parts/data/names.tsx';
import { CloseSupport } from '../../parts/dialogs/close-support.tsx';
import { Panel, Time, timeText } from '../../parts/page/page.tsx';
import { texts } from '../../texts.ts';
import { Severity } from './records.tsx';

const words = texts.support;
const readEvery = 15_000;

async function readSupport(id: string) {
  const params = { path: { id }, query: { pageSize: 100 } };
  return (await unwrap(api.GET('/api/v1/devices/{id}/support', { params }))).supportRequests.results ?? [];
}
type SupportRequest = Awaited<ReturnType<typeof readSupport>>[number];

/** Nothing where none is open. */
export function Support({ id }: { id: string }) {
  const { data, reload } = useLoad(() => readSupport(id), [id], readEvery);
  if (!data?.length) return null;
  return (
    <Panel title={words.title} kind="alarm" aria-label={words.title}>
      <ul class="plainlist">
        {data.map((one) => (
          <li key={one.id} class="refusal">
            <div>
              <p>{one.message ?? words.withoutMessage}</p>
              <p class="small soft">
                <NameOf kind="identity" id={one.createdById} otherwise={texts.audit.somebody} /> ·{' '}
                <Time iso={one.created} />
              </p>
              <Kept of={one} />
            </div>
            <CloseSupport deviceId={id} id={one.id} of={[timeText(one.created), one.message ?? '']} onClosed={reload} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** The log and the refusals, newest first. */
function Kept({ of: { log, refusals } }: { of: SupportRequest }) {
  if (log.length + refusals.length === 0) return null;
  return (
    <details>
      <summary>{words.kept(log.length, refusals.length)}</summary>
      <ul class="plainlist small">
        {refusals.map(({ time, reason }) => (
          <li key={`${time}${reason}`}>
            {reason} <Time iso={time} />
          </li>
        ))}
        {log.map(({ id, sourceTimestamp, severity, message, details }) => (
          <li key={id}>
            <span class="row">
              <Severity of={severity} /> {message ?? details}
            </span>
            <Time iso={sourceTimestamp} />
          </li>
        ))}
      </ul>
    </details>
  );
}
