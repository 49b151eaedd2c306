/** Tokens for programs: one's own, and for those who may read them all of the account. */
import { api, unwrap } from '../app/api.ts';
import { type Entity, readList, remove } from '../app/entities.ts';
import { accountId, can, me } from '../app/session.ts';
import { NameOf } from '../parts/data/names.tsx';
import { Ago } from '../parts/formats/ago.tsx';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import type { Column } from '../parts/lists/table.tsx';
import { creating, Once } from '../parts/lists/verbs.tsx';
import { Time } from '../parts/page/page.tsx';
import { type Rights, RightsTable, rightsIn } from '../people/rights-table.tsx';
import { texts } from '../texts.ts';

const words = texts.tokens;
type Token = Entity<'token'>;
const day = 24 * 60 * 60_000;
const usualDays = 90;
const maxDays = 365;
const dateIn = (days: number) => new Date(Date.now() + days * day).toISOString().slice(0, 10);

const owner: Column<Token> = {
  name: 'owner',
  label: words.owner,
  show: ({ ownerId }) => <NameOf kind="identity" id={ownerId} />,
};

export const tokens: EntityList<Token> = {
  label: words.tab,
  kind: 'token',
  empty: words.none,
  filters: [
    {
      name: 'whose',
      label: words.whose,
      options: [
        ['', words.whoses.own],
        ['all', words.whoses.all],
      ],
      isShown: () => can('read', 'token'),
    },
  ],
  // Without an account they are one's own.
  load: (page, { whose }) => readList('token', page, { accountId: whose === 'all' ? accountId.value : undefined }),
  columns: ({ whose }) => [
    { name: 'name', label: texts.name, show: ({ name }) => name },
    ...(whose === 'all' ? [owner] : []),
    { name: 'rights', label: words.may, wrap: true, show: (token) => <May of={token} /> },
    { name: 'expires', label: texts.validUntil, show: ({ expiresAt }) => <Time iso={expiresAt} /> },
    {
      name: 'used',
      label: words.lastUsed,
      show: ({ lastUsed }) => (lastUsed === null ? words.never : <Ago iso={lastUsed} />),
    },
  ],
  create: () => newToken(),
  verbs: (of) => [
    (of.ownerId === me.value?.id || can('delete', 'token')) && {
      text: words.end,
      kind: 'danger',
      ask: { title: words.endOf(of.name), says: words.endSays },
      run: async () => {
        await remove('token', of);
        return { said: words.ended(of.name) };
      },
    },
  ],
};

function May({ of: { rights, organizationId } }: { of: Token }) {
  return (
    <>
      {rights === null ? words.everything : words.some(Object.keys(rights).length)}
      {organizationId !== null && (
        <>
          {' '}
          {words.within} <NameOf kind="organization" id={organizationId} />
        </>
      )}
    </>
  );
}

const newToken = () =>
  creating(words.new, {
    values: { until: dateIn(usualDays), may: 'all' },
    fields: ({ may }) => [
      { name: 'name', label: texts.name, required: true },
      { name: 'until', label: texts.validUntil, type: 'date', min: dateIn(0), max: dateIn(maxDays), required: true },
      can('read', 'organization') && {
        name: 'organizationId',
        label: words.organization,
        pick: 'organization',
        none: words.everywhere,
      },
      { name: 'may', label: words.may, options: Object.entries(words.mays) },
      may === 'some' && <RightsTable most={ownRights()} />,
    ],
    save: async ({ name = '', until, organizationId, may, ...ticks }) => {
      const expiresAt = new Date(`${until}T23:59:59`).toISOString();
      const body = { name, expiresAt, organizationId, ...(may === 'some' && { rights: rightsIn(ticks) }) };
      const { token } = (await unwrap(api.POST('/api/v1/tokens', { body }))).token;
      return { said: '', note: <Once says={texts.tokenOnce} label={texts.token} text={token} /> };
    },
  });

/** All that somebody has by its roles: what a token may have at most. */
function ownRights(): Rights {
  const all: Record<string, string[]> = {};
  for (const { rights } of me.value?.roles ?? [])
    for (const [kind, given = []] of Object.entries(rights)) all[kind] = [...new Set([...(all[kind] ?? []), ...given])];
  return all;
}
