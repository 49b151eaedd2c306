/** Commands of a device: sent, followed until they end, cancelled. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../../app/api.ts';
import { can } from '../../app/session.ts';
import { readMine } from '../../my/read.ts';
import { useLoad } from '../../parts/data/load.ts';
import { failed, toast } from '../../parts/dialogs/toast.tsx';
import { ActionButton, Form, type Values } from '../../parts/forms/form.tsx';
import { Listing, pageSize } from '../../parts/lists/listing.tsx';
import { useVerbs, VerbButtons } from '../../parts/lists/verbs.tsx';
import { Panel, Time, timeText } from '../../parts/page/page.tsx';
import { State } from '../../parts/page/state.tsx';
import { texts } from '../../texts.ts';
import { CommandFields, payloadOf } from './command-fields.tsx';
import { commandVerbs, sendCommand } from './declared.tsx';

const words = texts.commands;
const hasEnded = (state: string) => !['queued', 'sent', 'accepted'].includes(state);

export function Commands({ id }: { id: string }) {
  const [round, setRound] = useState(0);
  const { data: product } = useLoad(async () => (await readMine(id)).deviceTemplate, [id]);
  const { start, dialog } = useVerbs(() => setRound((before) => before + 1));
  const params = { path: { id } };
  const send = async ({ commandName = '', payload }: Values, form: HTMLFormElement) => {
    await sendCommand(id, { name: commandName, ...payloadOf(payload) });
    form.reset();
    toast(words.sent);
    setRound(round + 1);
  };
  const cancel = async (commandId: string) => {
    await unwrap(api.DELETE('/api/v1/devices/{id}/commands/{commandId}', { params: { path: { id, commandId } } }));
    setRound(round + 1);
  };
  const other = (
    <Form save={send} verb={words.sendVerb}>
      <CommandFields />
    </Form>
  );
  return (
    <div class="aside">
      {can('create', 'command') && product && (
        <Panel title={words.send} kind="narrow">
          {product.commands.length > 0 && (
            <div class="row">
              <VerbButtons verbs={commandVerbs(id, product.commands, words)} start={start} />
            </div>
          )}
          {product.commands.length === 0 && other}
          {product.commands.length > 0 && !product.commandsOnly && (
            <details class="gap">
              <summary>{words.other}</summary>
              {other}
            </details>
          )}
        </Panel>
      )}
      {dialog}
      <div>
        <Listing
          label={words.title}
          on={[round]}
          every={1000}
          newestFirst
          load={async (page) => {
            const query = { page, pageSize };
            return (await unwrap(api.GET('/api/v1/devices/{id}/commands', { params: { ...params, query } }))).commands;
          }}
          columns={[
            { name: 'created', label: texts.created, show: ({ created }) => <Time iso={created} /> },
            { name: 'name', label: words.name, show: ({ name }) => <b>{name}</b> },
            { name: 'state', label: texts.state, show: ({ state }) => <State of={state} /> },
            {
              name: 'payload',
              label: texts.payload,
              wrap: true,
              show: ({ payload }) => payload !== null && <code>{JSON.stringify(payload)}</code>,
            },
            {
              name: 'result',
              label: words.result,
              wrap: true,
              show: ({ result, lateReply }) => {
                const reply = result ?? lateReply ?? null;
                return reply !== null && <code>{typeof reply === 'string' ? reply : JSON.stringify(reply)}</code>;
              },
            },
            {
              name: 'do',
              label: texts.actions,
              show: ({ id: commandId, state, name, created }) =>
                !hasEnded(state) &&
                can('delete', 'command') && (
                  <ActionButton
                    label={texts.cancel}
                    of={`${name} ${timeText(created)}`}
                    act={() => cancel(commandId)}
                    onError={failed}
                    kind="plain"
                  />
                ),
            },
          ]}
          empty={<p>{words.none}</p>}
        />
      </div>
    </div>
  );
}
