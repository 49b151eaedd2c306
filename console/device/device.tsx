/** One device: what it is, what it says, what it is allowed, and what can be done with it. */
import { Link } from 'wouter-preact';
import { change } from '../app/entities.ts';
import { accountId, can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import type { Values } from '../parts/forms/form.tsx';
import { deletion } from '../parts/lists/deletions.ts';
import { Menu } from '../parts/lists/menu.tsx';
import { itemsOf, useVerbs, VerbButtons, type Verbs } from '../parts/lists/verbs.tsx';
import { goesBack, useCameFrom } from '../parts/page/back.ts';
import { Badge, Online, Page, Tabs, Waiting } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { Access } from './access.tsx';
import { Series } from './charts/series.tsx';
import { Commands } from './commands/commands.tsx';
import { Fields } from './fields.tsx';
import { Firmware } from './firmware.tsx';
import { Live } from './messages/live.tsx';
import { Overview } from './overview.tsx';
import { History, Log, Refusals } from './records/records.tsx';
import { Support } from './records/support.tsx';
import { type DeviceRow, readDevice } from './row.ts';
import { Where } from './where.tsx';

const words = texts.device;

/** Parts that stand together in one tab. */
const groups: Record<string, readonly string[]> = { log: ['log', 'refusals', 'history'], fields: ['fields', 'access'] };

export function Device({ id, tab }: { id: string; tab: string }) {
  const { data: device, error, reload } = useLoad(() => readDevice(id), [id], 10_000);
  const { start, notes, dialog } = useVerbs(reload);
  const from = useCameFrom(`/devices/${id}`, '/devices');
  if (!device) return <Waiting title={words.one} error={error} trash="" />;
  const parts = Object.entries(words.tabs).filter(
    ([name]) =>
      (name !== 'history' || can('read', 'auditRecord') || can('read', 'supportRequest')) &&
      (name !== 'commands' || can('read', 'command')),
  );
  const of = { ...device, name: device.serialNumber };
  return (
    <Page
      title={device.serialNumber}
      part={tab === '' ? undefined : parts.find(([name]) => name === tab)?.[1]}
      actions={
        <>
          <VerbButtons verbs={verbsOf(device)} start={start} />
          <Menu
            label={words.more}
            items={itemsOf(
              [
                can('delete', 'device') &&
                  deletion('device', of, words.deleteSays, from.startsWith('/devices?') ? from : '/devices'),
              ],
              start,
            )}
          />
        </>
      }
    >
      <p class="row">
        <Link href={from} onClick={goesBack}>
          {words.back}
        </Link>
        <Online is={device.connected} />
        <Badge text={texts.devices.states[device.provisioningState] ?? device.provisioningState} />
        <Where device={device} />
      </p>
      {notes}
      <Parts base={`/devices/${id}`} tab={tab} parts={parts} />
      {tab === '' && <Overview device={device} />}
      {tab === 'live' && <Live device={device} />}
      {tab === 'series' && <Series device={device} />}
      {tab === 'commands' && <Commands id={id} />}
      {tab === 'log' && <Log id={id} />}
      {tab === 'refusals' && <Refusals id={id} />}
      {tab === 'fields' && <Fields device={device} onSaved={reload} />}
      {tab === 'access' && <Access device={device} onChanged={reload} />}
      {tab === 'firmware' && <Firmware device={device} />}
      {tab === 'history' && can('read', 'supportRequest') && <Support id={id} />}
      {tab === 'history' && can('read', 'auditRecord') && <History id={id} accountId={accountId.value} />}
      {dialog}
    </Page>
  );
}

function verbsOf(device: DeviceRow): Verbs {
  const to = (tab: string) => async () => ({ said: '', to: `/devices/${device.id}/${tab}` });
  return [
    can('create', 'command') && { text: texts.commands.name, run: to('commands') },
    { text: texts.device.update, run: to('firmware') },
    can('update', 'device') && {
      text: texts.move,
      form: {
        title: texts.organizations.moveOf(device.serialNumber),
        verb: texts.move,
        values: device,
        fields: () => [
          words.moveSays,
          { name: 'organizationId', label: texts.organization, pick: 'organization', none: texts.none },
        ],
        save: async ({ organizationId = null }: { organizationId?: string | null } & Values) => {
          await change('device', device, { organizationId });
          return { said: texts.organizations.moved(device.serialNumber) };
        },
      },
    },
  ];
}

/** The tabs, and below them the parts of a tab that has several. */
function Parts({ base, tab, parts }: { base: string; tab: string; parts: readonly (readonly [string, string])[] }) {
  const [group = tab, members = []] = Object.entries(groups).find(([, names]) => names.includes(tab)) ?? [];
  const inside = Object.values(groups).flat();
  const tabs = parts
    .filter(([name]) => name in groups || !inside.includes(name))
    .map(([name, label]) => [name, words.groups[name] ?? label] as const);
  return (
    <>
      <Tabs base={base} current={group} tabs={tabs} />
      {members.length > 0 && (
        <Tabs
          label={words.groups[group]}
          base={base}
          current={tab}
          tabs={parts.filter(([name]) => members.includes(name))}
        />
      )}
    </>
  );
}
