/** What an account is charged for in messages.db is what it has there, whatever has happened in between. */
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { MessageStore } from '../../db/messages/store.ts';
import { copyMessages } from '../../db/moving/messages.ts';
import { temporaryDirectory } from '../support/directory.ts';

const accountId = '018f0000-0000-7000-8000-00000000000a';
const clientId = `${accountId}/device`;

async function open(t: Test, directory = temporaryDirectory(t)) {
  const store = await MessageStore.open(directory, { log: { error: (details) => t.fail('error', details) } });
  t.teardown(() => store.close());
  const record = (...changes: Parameters<MessageStore['record']>[0]) =>
    new Promise<void>((resolve, reject) => store.record(changes, (error) => (error ? reject(error) : resolve())));
  const begin = (session: number) =>
    record(
      { kind: 'session', session, clientId, left: null },
      { kind: 'subscribe', session, filter: `long/${'x'.repeat(500)}`, options: 1 },
    );
  return { store, directory, record, begin };
}

t.test('a session that a crash has left beside a newer one costs nothing after the next start', async (t) => {
  const { store, directory, begin } = await open(t);
  await begin(1);
  const [once] = await store.heldByAccount();
  await begin(2);
  await store.close();
  const again = await open(t, directory);
  t.same(await again.store.heldByAccount(), [once]);
  await again.record({ kind: 'endSession', session: 2, messages: [] });
  t.same(await again.store.heldByAccount(), []);
});

t.test('an account costs the same after it has moved', async (t) => {
  const from = await open(t);
  await from.begin(1);
  const held = await from.store.heldByAccount();
  const to = await open(t);
  const pathOf = (directory: string) => join(directory, 'messages.db');
  await Promise.all([from.store.close(), to.store.close()]);
  copyMessages(pathOf(to.directory), pathOf(from.directory), {
    accounts: [accountId],
    bridges: [],
    onPoints: () => {},
  });
  const { store } = await open(t, to.directory);
  t.same(await store.heldByAccount(), held);
});
