/** Tokens for programs: one's own, and for those who may read them all of the account. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId, can, me } from '../app/session.ts';
import { Ago } from '../parts/ago.tsx';
import { Code } from '../parts/code.tsx';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { Field, Form, Select, type Values } from '../parts/form.tsx';
import { Listing, pageSize } from '../parts/lists/listing.tsx';
import { useParam } from '../parts/lists/param.ts';
import { NameOf } from '../parts/names.tsx';
import { Time } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { toast } from '../parts/toast.tsx';
import { type Rights, RightsTable, rightsIn } from '../people/rights-table.tsx';
import { texts } from '../texts.ts';

const words = texts.tokens;
const day = 24 * 60 * 60_000;
const usualDays = 90;
const maxDays = 365;

async function readTokens(page: number, isAll: boolean) {
  const query = { page, pageSize, ...(isAll && { accountId: accountId.value }) };
  return (await unwrap(api.GET('/api/v1/tokens', { params: { query } }))).tokens;
}
type Token = NonNullable<Awaited<ReturnType<typeof readTokens>>['results']>[number];

export function Tokens() {
  const [making, setMaking] = useState(false);
  const [ending, setEnding] = useState<Token>();
  const [text, setText] = useState<string>();
  const [whose, setWhose] = useParam('whose');
  const isAll = whose === 'all';
  const [round, setRound] = useState(0);
  const again = () => setRound((before) => before + 1);
  return (
    <>
      <div class="row">
        {can('read', 'token') && (
          <Select
            label={words.whose}
            value={isAll ? 'all' : 'own'}
            options={Object.entries(words.whoses)}
            onText={(chosen) => setWhose(chosen === 'all' ? chosen : '')}
          />
        )}
        <button type="button" class="primary" onClick={() => setMaking(true)}>
          {words.new}
        </button>
      </div>
      {text && (
        <div class="note warn">
          <p>{words.once}</p>
          <Code label={words.text} text={text} />
        </div>
      )}
      <Listing<Token>
        label={words.tab}
        on={[round, isAll]}
        load={(page) => readTokens(page, isAll)}
        columns={columnsOf(isAll)}
        nameOf={({ name }) => name}
        actions={(one) => [
          (one.ownerId === me.value?.id || can('delete', 'token')) && {
            text: words.end,
            run: () => setEnding(one),
            danger: true,
          },
        ]}
        empty={<p>{words.none}</p>}
      />
      {making && (
        <NewToken
          onDone={(made) => {
            setText(made);
            setMaking(false);
            again();
          }}
          onClose={() => setMaking(false)}
        />
      )}
      {ending && (
        <Confirm
          title={words.endOf(ending.name)}
          says={words.endSays}
          verb={words.end}
          run={async () => {
            await unwrap(api.DELETE('/api/v1/tokens/{id}', { params: { path: { id: ending.id } } }));
            toast(words.ended(ending.name));
            again();
          }}
          onClose={() => setEnding(undefined)}
        />
      )}
    </>
  );
}

function columnsOf(isAll: boolean) {
  const owner = {
    name: 'owner',
    label: words.owner,
    show: ({ ownerId }: Token) => <NameOf kind="identity" id={ownerId} />,
  };
  return [
    { name: 'name', label: texts.name, show: ({ name }: Token) => name },
    ...(isAll ? [owner] : []),
    {
      name: 'rights',
      label: words.may,
      wrap: true,
      show: ({ rights, organizationId }: Token) => (
        <>
          {rights === null ? words.everything : words.some(Object.keys(rights).length)}
          {organizationId !== null && (
            <>
              {' '}
              {words.within} <NameOf kind="organization" id={organizationId} />
            </>
          )}
        </>
      ),
    },
    { name: 'expires', label: words.expires, show: ({ expiresAt }: Token) => <Time iso={expiresAt} /> },
    {
      name: 'used',
      label: words.lastUsed,
      show: ({ lastUsed }: Token) => (lastUsed === null ? words.never : <Ago iso={lastUsed} />),
    },
  ];
}

/** All that somebody has by its roles: what a token may have at most. */
function ownRights(): Rights {
  const all: Record<string, string[]> = {};
  for (const { rights } of me.value?.roles ?? [])
    for (const [kind, given = []] of Object.entries(rights)) all[kind] = [...new Set([...(all[kind] ?? []), ...given])];
  return all;
}

const dateIn = (days: number) => new Date(Date.now() + days * day).toISOString().slice(0, 10);

function NewToken({ onDone, onClose }: { onDone: (text: string) => void; onClose: () => void }) {
  const [isNarrow, setNarrow] = useState(false);
  const make = async (values: Values) => {
    const { name = '', until = '', organizationId } = values;
    const body = {
      ...{ name, expiresAt: new Date(`${until}T23:59:59`).toISOString() },
      ...(organizationId && { organizationId }),
      ...(isNarrow && { rights: rightsIn(values) }),
    };
    onDone((await unwrap(api.POST('/api/v1/tokens', { body }))).token.token);
  };
  return (
    <Dialog title={words.new} onClose={onClose} wide={isNarrow}>
      <Form save={make} verb={texts.create} onCancel={onClose}>
        <Field label={texts.name} name="name" required />
        <Field
          label={words.expires}
          name="until"
          type="date"
          min={dateIn(0)}
          max={dateIn(maxDays)}
          defaultValue={dateIn(usualDays)}
          required
        />
        {can('read', 'organization') && (
          <Picker kind="organization" label={words.organization} name="organizationId" none={words.everywhere} />
        )}
        <Select
          label={words.may}
          value={isNarrow ? 'some' : 'all'}
          options={Object.entries(words.mays)}
          onText={(chosen) => setNarrow(chosen === 'some')}
        />
        {isNarrow && <RightsTable most={ownRights()} />}
      </Form>
    </Dialog>
  );
}
