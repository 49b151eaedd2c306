/** Events of what goes on: a few a second, and the last one at once. */
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { endEvents } from '../../src/core/network/event-bodies.ts';
import { defaultRoles } from '../../src/core/rights.ts';
import { type Followed, ProgressStreams } from '../../src/http/answers/progress-streams.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test('the last event does not wait for its turn; others do', async (t) => {
  const state = { done: 0, ended: false };
  let tell: (ended?: boolean) => void = () => {};
  const followed: Followed = {
    event: 'job',
    read: async () => ({ data: { done: state.done }, ended: state.ended }),
    watch: (hear) => {
      tell = hear;
      return () => {};
    },
    isPermitted: () => true,
  };
  const caller = { kind: 'admin', id: 'a', accountId: 'b', role: defaultRoles.account } as const;
  const log = { error: (error: unknown) => t.fail(String(error)) };
  const body = new ProgressStreams({ log, sessions: { noteUse: () => {} } }).open(caller, followed);
  let text = '';
  body.on('data', (chunk) => {
    text += chunk;
  });
  let ended = false;
  const end = once(body, 'end').then(() => {
    ended = true;
  });
  await nextTurn();
  for (state.done = 1; state.done < 9; state.done += 1) {
    tell();
    await nextTurn();
  }
  t.equal(text, 'event: job\ndata: {"done":0}\n\n', 'what follows the first at once waits');
  state.ended = true;
  tell(true);
  for (let turn = 0; turn < 10 && !ended; turn += 1) await nextTurn();
  t.ok(ended, 'in the next turns of the event loop');
  t.equal(text, 'event: job\ndata: {"done":0}\n\nevent: job\ndata: {"done":9}\n\n');
  await end;
});

t.test('a reader that has not taken what came before gets no more of it, and no proper end', async (t) => {
  const body = new Readable({ read() {} });
  body.push('secret');
  endEvents(body);
  body.on('data', () => t.fail('it got more'));
  await t.rejects(finished(body), { code: 'ERR_STREAM_PREMATURE_CLOSE' });
});

t.end();
