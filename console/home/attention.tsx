/** What needs somebody: a count, a sentence, and what to do about it, which the whole row leads to. */
import { Link } from 'wouter-preact';
import { CloseSupport } from '../parts/dialogs/close-support.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { texts } from '../texts.ts';
import type { OverviewOf } from './read.ts';

const words = texts.home;
type Row = OverviewOf['attention'][number];

/** Where the rows of each kind are listed. */
const places: Record<Row['kind'], (row: Row) => string> = {
  supportRequested: ({ deviceId = '' }) => `/devices/${deviceId}/history`,
  devicesOffline: ({ query }) => `/devices?${kept(query, 'offlineSince')}`,
  devicesSilent: ({ query }) => `/devices?${kept(query, 'silent')}`,
  refusals: ({ cause = '' }) => `/home/refusals?cause=${encodeURIComponent(cause)}`,
  rolloutPaused: ({ id = '' }) => `/firmware/rollouts/${id}`,
  rolloutFailing: ({ id = '' }) => `/firmware/rollouts/${id}`,
  jobFailed: ({ id = '' }) => `/factory/${id}`,
  bridgeBehind: () => '/programs/bridges',
  bridgeDeadLetters: () => '/programs/bridges',
  certificatesExpiring: ({ query }) => `/home/certificates?${kept(query, 'expiresBefore')}`,
  authoritiesExpiring: () => '/enrollment/authorities',
  limit: () => '/account/usage',
  clockDoubted: () => '/account/usage',
};

/** Something does not work now, and something will not soon. */
const urgent: readonly Row['kind'][] = ['rolloutFailing', 'jobFailed', 'bridgeDeadLetters', 'bridgeBehind'];

function kept(query: string, name: string): string {
  const value = new URLSearchParams(query.slice(query.indexOf('?') + 1)).get(name);
  return value === null ? '' : new URLSearchParams({ [name]: value }).toString();
}

/** The API names settings where people read of what they limit. */
function sentenceOf({ kind, count, name = '', message, sentence }: Row): string {
  // Whatever people write stands apart from the sentence.
  if (kind === 'supportRequested') return texts.support.asks(name, message ?? '');
  const [, limit] = (kind === 'limit' && texts.account.limits[name]) || [];
  return limit ? words.limitUsed(count, limit) : sentence;
}

export function Attention({ rows, onChanged }: { rows: readonly Row[]; onChanged: () => void }) {
  return (
    <section class={rows.length > 0 ? 'panel alarm' : 'panel'}>
      <h2>{words.attention}</h2>
      {rows.length === 0 ? (
        <p class="row calm">
          <Icon name="check" /> {words.calm}
        </p>
      ) : (
        <ul class="plainlist attention">
          {rows.map((row) => (
            <li key={`${row.kind}${row.id ?? row.cause ?? row.name ?? ''}`}>
              <span class={urgent.includes(row.kind) ? 'badge bad' : 'badge warn'}>
                {(row.count === 0 && words.withoutCount[row.kind]) || words.count(row.kind, row.count)}
              </span>
              <Link href={places[row.kind](row)}>
                <span>{sentenceOf(row)}</span> <b>{words.verbs[row.kind]}</b>
              </Link>
              {row.kind === 'supportRequested' && (
                <CloseSupport
                  deviceId={row.deviceId ?? ''}
                  id={row.id ?? ''}
                  of={[row.name ?? '', row.message ?? '']}
                  onClosed={onChanged}
                />
              )}
              <Icon name="right" />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
