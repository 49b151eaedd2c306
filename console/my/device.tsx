/** A device of a customer: its values, what it can do, and what becomes of it. Everything else is behind "Details". */
import { ApiError, api, unwrap } from '../app/api.ts';
import { change } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { LatestValues } from '../claim/first-value.tsx';
import { commandVerbs } from '../device/commands/declared.tsx';
import { useLoad } from '../parts/data/load.ts';
import { Ago } from '../parts/formats/ago.tsx';
import { ErrorNote } from '../parts/forms/form.tsx';
import { useVerbs, type Verb, VerbButtons } from '../parts/lists/verbs.tsx';
import { Loading, Online, Panel } from '../parts/page/shown.tsx';
import { texts } from '../words.ts';
import { GiveAway } from './give-away.tsx';
import { MyPage } from './page.tsx';
import { type Mine, nameOf, readMine } from './read.ts';
import { Share } from './share.tsx';
import { words } from './words.ts';

/** Milliseconds until it is read again. */
const readEvery = 15_000;
const maxValues = 24;

export function Device({ id, brand }: { id: string; brand: string }) {
  const { data: device, error, reload } = useLoad(() => readMine(id), [id], readEvery);
  const { start, notes, dialog } = useVerbs(reload);
  if (!device)
    return (
      <MyPage title={words.title} brand={brand} isBelow>
        {error ? <ErrorNote error={error} /> : <Loading />}
      </MyPage>
    );
  const name = nameOf(device);
  const { deviceTemplate } = device;
  const declared = deviceTemplate?.commands.filter(({ forCustomers }) => forCustomers) ?? [];
  const commands = can('create', 'command') ? commandVerbs(id, declared, words.command) : [];
  return (
    <MyPage title={name} brand={brand} isBelow>
      <p class="row">
        <Online is={device.connected} />
        {!device.connected && (
          <span class="small soft">
            {device.lastConnected ? (
              <>
                {words.lastConnected} <Ago iso={device.lastConnected} />
              </>
            ) : (
              words.neverConnected
            )}
          </span>
        )}
        <span class="small soft">
          {deviceTemplate?.name}
          {name !== device.serialNumber && <> · {device.serialNumber}</>}
        </span>
      </p>
      {notes}
      <div class="grid">
        <Panel title={texts.claim.values}>
          <LatestValues deviceId={id} most={maxValues} none={words.noValues} />
        </Panel>
        {commands.length > 0 && (
          <Panel title={words.commands}>
            <div class="row">
              <VerbButtons verbs={commands} start={start} />
            </div>
          </Panel>
        )}
      </div>
      <div class="row gap">
        <VerbButtons verbs={verbsOf(device)} start={start} />
        <a class="button" href={`/console/devices/${id}`}>
          {words.details}
        </a>
        <VerbButtons verbs={[removing(device, name)]} start={start} />
      </div>
      {dialog}
    </MyPage>
  );
}

function verbsOf(device: Mine): (Verb | false)[] {
  const { organizationId } = device;
  const name = nameOf(device);
  const mayChange = can('update', 'device');
  return [
    organizationId !== null &&
      can('create', 'endUser') && {
        text: words.share,
        dialog: (_, close) => <Share name={name} organizationId={organizationId} close={close} />,
      },
    organizationId !== null &&
      mayChange && {
        text: words.giveAway,
        dialog: (_, close) => <GiveAway id={device.id} name={name} close={close} />,
      },
    mayChange && {
      text: words.rename,
      form: {
        title: words.renameOf(name),
        values: { name: device.name },
        fields: () => [{ name: 'name', label: words.name, maxLength: 255, autoComplete: 'off' }],
        save: async ({ name: given }) => {
          await change('device', device, { name: given ?? null });
        },
      },
    },
    asking(device, name),
  ];
}

function asking({ id }: Mine, name: string): Verb {
  return {
    text: words.support,
    form: {
      title: words.supportOf(name),
      verb: words.supportVerb,
      fields: () => [words.supportSays, { name: 'message', label: words.supportMessage, isLong: true }],
      save: async ({ message }) => {
        await unwrap(api.POST('/api/v1/devices/{id}/support', { params: { path: { id } }, body: { message } }));
        return { said: words.supportSent };
      },
    },
  };
}

function removing(device: Mine, name: string): Verb | false {
  if (device.organizationId === null || !can('update', 'device')) return false;
  return {
    text: words.remove,
    kind: 'danger',
    ask: { title: words.removeOf(name), says: words.removeSays },
    run: async () => {
      await change('device', device, { organizationId: null }).catch((error) => {
        throw error instanceof ApiError && error.status === 403 ? new Error(words.mayNotRemove) : error;
      });
      return { said: words.removed(name), to: '/' };
    },
  };
}
