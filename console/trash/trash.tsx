/** Everything deleted, until when it can be recovered, and the way back. */
import { useState } from 'preact/hooks';
import { entityPaths, readTrash, recover, type Slice } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { ActionButton, Select } from '../parts/forms/form.tsx';
import { Listing } from '../parts/lists/listing.tsx';
import { useParam } from '../parts/lists/param.ts';
import { Page, Tabs, Time, trashed } from '../parts/page/page.tsx';
import { emailsOf } from '../people/emails.ts';
import { texts } from '../texts.ts';

const words = texts.trash;
type Tab = keyof typeof words.tabs;
type FieldsOf = keyof typeof words.kinds;
/** Milliseconds: thirty days. */
const kept = 30 * 86_400_000;

interface Trashed {
  id: string;
  version: string;
  deleted?: string;
  name?: string | null;
  serialNumber?: string;
  userId?: string | null;
  email?: string | undefined;
}

const nameOf = ({ serialNumber, name, email }: Trashed) => serialNumber ?? name ?? email;

async function read(tab: Tab, of: FieldsOf, page: number): Promise<Slice<Trashed>> {
  const list = await readTrash<Trashed>(pathOf(tab, of), page);
  if (tab !== 'people' || !can('read', 'profile')) return list;
  const people = (list.results ?? []).map(({ userId = null, ...one }) => ({ ...one, userId }));
  const emails = await emailsOf(people);
  return { ...list, results: people.map((one) => ({ ...one, email: emails.get(one.userId) })) };
}

/** Where it is in the trash. Custom fields of each kind have their own. */
const pathOf = (tab: Tab, of: FieldsOf) => (tab === 'fields' ? `${of}/custom-fields` : entityPaths[trashed[tab]]);

export function Trash({ tab: asked }: { tab: string }) {
  const tabs = Object.entries(words.tabs).filter(([name]) => can('delete', trashed[name as Tab]));
  const tab = (tabs.find(([name]) => name === asked) ?? tabs[0] ?? [''])[0] as Tab;
  const [kind, setKind] = useParam('of');
  const of = (kind in words.kinds ? kind : 'devices') as FieldsOf;
  const [round, setRound] = useState(0);
  const bring = async (one: Trashed) => {
    await recover(pathOf(tab, of), one);
    toast(words.recovered(nameOf(one) ?? one.id));
    setRound((before) => before + 1);
  };
  return (
    <Page title={texts.places.trash}>
      <Tabs base="/trash" current={tab} tabs={tabs} />
      {tab === 'fields' && (
        <div class="toolbar">
          <Select label={words.fieldsOf} value={of} options={Object.entries(words.kinds)} onText={setKind} />
        </div>
      )}
      <Listing
        label={words.tabs[tab]}
        on={[round, of]}
        load={(page) => read(tab, of, page)}
        columns={[
          { name: 'name', label: texts.name, show: (one) => nameOf(one) ?? <code>{one.id}</code> },
          { name: 'deleted', label: words.deleted, show: ({ deleted }) => <Time iso={deleted} /> },
          {
            name: 'until',
            label: words.until,
            show: ({ deleted }) => deleted && <Time iso={new Date(Date.parse(deleted) + kept).toISOString()} />,
          },
          {
            name: 'do',
            label: texts.actions,
            show: (one) => (
              <ActionButton label={words.recover} of={nameOf(one) ?? one.id} act={() => bring(one)} onError={failed} />
            ),
          },
        ]}
        empty={<p>{words.none}</p>}
      />
    </Page>
  );
}
