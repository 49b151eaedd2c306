/** What an account uses, in groups: first what is counted, with how full it is, then the other limits. */
import { api, unwrap } from '../app/api.ts';
import { useLoad } from '../parts/data/load.ts';
import { ErrorNote } from '../parts/forms/form.tsx';
import { Loading, Stat, Time } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';

const words = texts.account;
const groups = Object.keys(words.groups) as (keyof typeof words.groups)[];
/** Percent from which on a limit is near. */
const near = 80;

const readUsage = async () => (await unwrap(api.GET('/api/v1/usage'))).usage;
type Limit = Awaited<ReturnType<typeof readUsage>>['limits'][number];

const groupOf = ({ name }: Limit) => words.limits[name]?.[0] ?? 'mqtt';
const labelOf = ({ name }: Limit) => words.limits[name]?.[1] ?? name;
const limitText = ({ limit, unit, name }: Limit) =>
  limit === 0
    ? words.unlimited
    : /^per /.test(unit)
      ? words.rate(limit, unit, /Byte/.test(name))
      : words.amount(limit, unit);

export function Usage() {
  const { data, error } = useLoad(readUsage, [], 30_000);
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  const counted = data.limits.filter(({ used }) => used !== null);
  const others = data.limits.filter(({ used }) => used === null);
  return (
    <div class="stack">
      <dl class="stats">
        <Stat label={words.messagesStored}>{words.amount(data.messagesBytes, 'bytes')}</Stat>
        <Stat label={words.points}>{words.amount(data.points, 'items')}</Stat>
        <Stat label={words.logs}>{words.amount(data.logs, 'items')}</Stat>
        <Stat label={words.oldest}>
          <Time iso={data.oldest} />
        </Stat>
      </dl>
      <h2>{words.counted}</h2>
      <Groups limits={counted} />
      <h2>{words.others}</h2>
      <p class="soft">{words.othersHint}</p>
      <Groups limits={others} />
    </div>
  );
}

function Groups({ limits }: { limits: readonly Limit[] }) {
  return (
    <div class="masonry">
      {groups.map((group) => {
        const own = limits.filter((one) => groupOf(one) === group);
        return (
          own.length > 0 && (
            <section class="panel" key={group}>
              <h3>{words.groups[group]}</h3>
              <ul class="shares">
                {own.map((one) => (
                  <Row key={one.name} limit={one} />
                ))}
              </ul>
            </section>
          )
        );
      })}
    </div>
  );
}

/** The setting is for the operator: it is there for the pointer, and for who searches the page. */
function Row({ limit: one }: { limit: Limit }) {
  const { used, limit, unit, per, variable } = one;
  const percent = limit > 0 && used !== null ? Math.min(100, (100 * used) / limit) : 0;
  const isNear = percent >= near;
  return (
    <li title={variable}>
      <span>
        {labelOf(one)} {used === null && per !== 'account' && <span class="soft small">{words.per(per)}</span>}
      </span>
      <span class={isNear ? 'badge warn' : 'small'}>
        {used !== null && <b>{words.amount(used, unit)}</b>}
        <span class={isNear ? undefined : 'soft'}>
          {used !== null && ' / '}
          {limitText(one)}
        </span>
      </span>
      {used !== null && limit > 0 && (
        <svg class="bar" role="img" aria-label={words.percent(Math.round(percent))}>
          <rect class={isNear ? 'part near' : 'part on'} width={`${percent}%`} height="100%" />
        </svg>
      )}
    </li>
  );
}
