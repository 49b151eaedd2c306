import { Journal } from '../../broker/sessions/journal.ts';
import type { MqttChange } from '../../db/messages/sessions/changes.ts';
import { part } from '../support/part.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

type Answer = (error?: Error) => void;

/** A journal on a disk that answers when it is told to. */
function journalled() {
  const written: MqttChange[][] = [];
  const answers: Answer[] = [];
  const journal = new Journal({
    record: (changes, done) => {
      written.push([...changes]);
      answers.push(done);
    },
  });
  return { journal, written, answer: (error?: Error) => answers.shift()?.(error) };
}

const full = new Error('the disk is full');
const subscribe = (filter: string, options = 1): MqttChange => ({
  kind: 'subscribe',
  session: 1,
  filter,
  options,
  identifier: null,
});
const message = (id: number, ...sessions: number[]): MqttChange => ({
  kind: 'message',
  accountId: 'account',
  message: { id, topic: 'x', qos: 1, payload: new Uint8Array(), properties: null, expires: null, retain: 0 },
  sessions,
});
/** A change that the journal has not sent yet, or that has come back, is sent in the end. */
const next = async (written: unknown[][], length: number) => {
  await until(() => written.length >= length);
  return written[length - 1];
};

t.test('what is refused is tried again, but not where something later has replaced it', async (t) => {
  const { journal, written, answer } = journalled();
  journal.record(subscribe('a', 0));
  journal.record(subscribe('b'));
  journal.record(message(7, 1, 2));
  const first = journal.durable();
  journal.record(subscribe('a', 2));
  journal.recordUnqueue(1, 7);
  const second = journal.durable();
  let durable = 0;
  for (const promise of [first, second])
    void promise.then(() => {
      durable += 1;
    });
  answer(full);
  answer();
  t.same(await next(written, 3), [subscribe('b'), message(7, 2)]);
  t.equal(durable, 0, 'who waits for the later waits for the earlier too');
  answer(full);
  journal.record(subscribe('b', 0));
  t.same(await next(written, 4), [subscribe('b', 0)], 'what is new does not wait');
  answer();
  t.same(await next(written, 5), [message(7, 2)], 'and what it has replaced does not come back');
  answer();
  await Promise.all([first, second]);
  t.equal(journal.pending, 0);
  journal.close();
});

t.test('a message that leaves its queue before it was written never is', async (t) => {
  const { journal, written, answer } = journalled();
  journal.record(message(7, 1));
  journal.record(message(8, 1, 2));
  journal.recordUnqueue(1, 7);
  journal.recordUnqueue(1, 8);
  journal.flush();
  t.same(written, [[message(8, 2)]]);
  journal.recordUnqueue(2, 8);
  journal.flush();
  t.same(written[1], [{ kind: 'unqueue', session: 2, id: 8 }], 'one that is on its way is removed');
  answer();
  answer();
  journal.close();
});

t.test('a promise goes after what was recorded before it, and is given up when it fails', async (t) => {
  const { journal, written, answer } = journalled();
  journal.record(subscribe('a'));
  const failed = new Promise((resolve) => journal.promise([message(7, 1)], resolve));
  t.same(written, [[subscribe('a')], [message(7, 1)]]);
  answer();
  answer(full);
  t.equal(await failed, full);
  t.equal(journal.pending, 0);
  await journal.durable();
  journal.close();
});

t.end();
