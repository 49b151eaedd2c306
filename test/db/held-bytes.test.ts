/** What an account is charged for in messages.db is what it has there, whatever has happened in between. */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import type { Test } from 'tap';
import { copyMessages } from '../../cells/moves/offline/messages.ts';
import { bringUpToDate } from '../../db/files/schema.ts';
import { OutboxWriter } from '../../db/messages/outbox/writer.ts';
import { MessageStore } from '../../db/messages/store.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const accountId = '018f0000-0000-7000-8000-00000000000a';
const clientId = `${accountId}/device`;

async function open(t: Test, directory = temporaryDirectory(t)) {
  const store = await MessageStore.open(directory, { log: { error: (details) => t.fail('error', details) } });
  t.teardown(() => store.close());
  const record = (...changes: Parameters<MessageStore['record']>[0]) =>
    new Promise<void>((resolve, reject) => store.record(changes, (error) => (error ? reject(error) : resolve())));
  const begin = (session: number) =>
    record(
      { kind: 'session', session, clientId, left: null, expiry: null },
      { kind: 'subscribe', session, filter: `long/${'x'.repeat(500)}`, options: 1, identifier: null },
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

t.test('what waits for bridges is counted once, by the amounts that refuse it and for its account', async (t) => {
  const directory = temporaryDirectory(t);
  await bringUpToDate(directory, 'messages.db');
  const file = new Sqlite(join(directory, 'messages.db'));
  t.teardown(() => file.close());
  const outbox = new OutboxWriter(file);
  const message = {
    id: 'm',
    deviceId: 'd',
    organizationId: null,
    deviceTemplateId: 't',
    channel: 'c',
    qos: 1,
    time: 1,
    properties: null,
    expires: null,
  };
  for (const [sequence, size] of [0, 100, 3000, 5000, 100_000].entries())
    outbox.write(
      { kind: 'add', accountId: 'a', bridgeIds: ['b'], message: { ...message, payload: Buffer.alloc(size) } },
      () => sequence,
    );
  const counted = file.prepare<[], number>('SELECT "bytes" FROM "heldBytes"').pluck();
  t.equal(outbox.pendingBytes, counted.get());
  t.equal(new OutboxWriter(file).pendingBytes, counted.get(), 'and after the next start');
  outbox.write({ kind: 'forget', bridgeIds: ['b'] }, () => 0);
  t.equal(outbox.pendingBytes, 0);
});

t.end();
