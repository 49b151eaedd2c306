/** Targets that answer, but slowly: a batch gives its place up in time, and nothing of it is lost. */
import type { OutboxRow } from '../../db/messages/outbox/rows.ts';
import { Guaranteed } from '../../src/bridges/guaranteed.ts';
import { Refusing } from '../../src/bridges/refusing.ts';
import { sendInRounds, targetOf } from '../../src/bridges/sending.ts';
import { type BridgedMessage, type Target, wholly } from '../../src/bridges/target.ts';
import { part } from '../support/part.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const message = (index: number, deviceId = 'dev'): BridgedMessage => ({
  id: `message-${index}`,
  topic: `slipway/v1/acc/d/${deviceId}/ch`,
  accountId: 'acc',
  deviceId,
  organizationId: null,
  deviceTemplateId: 'tpl',
  channel: 'ch',
  qos: 1,
  time: index,
  payload: Buffer.from('x'),
  size: 1,
});

t.test('a batch of one device to a slow target ends after its timeout; what was stored counts', async (t) => {
  let now = 0;
  const clock = { now: () => now };
  const outcome = await sendInRounds(
    [1, 2, 3, 4].map((index) => message(index)),
    { clock, timeout: 1000 },
    async () => {
      now += 600;
      return ['accepted'];
    },
  );
  t.strictSame(
    outcome,
    [{ ids: ['message-1', 'message-2'], result: 'accepted' }],
    'the others are not said anything of',
  );
});

t.test('what a batch had no time for is sent next, in order', async (t) => {
  let now = 0;
  const clock = { now: () => now };
  const rows = [1, 2, 3, 4, 5].map((sequence) => ({ ...message(sequence), sequence })) as unknown as OutboxRow[];
  const pending = new Map(rows.map((row) => [row.sequence, row]));
  const messages = {
    outbox: { pending: (_: string, after: number) => [...pending.values()].filter(({ sequence }) => sequence > after) },
    recordOutbox: ([change]: [{ sequences: number[] }], done: () => void) => {
      for (const sequence of change.sequences) pending.delete(sequence);
      done();
    },
  };
  const stored: string[] = [];
  const send: Target['send'] = (batch) =>
    sendInRounds(batch, { clock, timeout: 1000 }, async (round) => {
      now += 600;
      stored.push(...round.map(({ id }) => id));
      return round.map(() => 'accepted');
    });
  const failures: string[] = [];
  const around = {
    messages,
    clock,
    ages: clock,
    log: { error: (fields: object) => t.fail(JSON.stringify(fields)) },
    retryAge: 1e9,
    deliveredAge: 0,
    reports: { delivered() {}, failed: (reason: string) => failures.push(reason), dropped() {}, died() {} },
    refusing: new Refusing(),
    show: (row: OutboxRow) => row as unknown as BridgedMessage,
  } as unknown as ConstructorParameters<typeof Guaranteed>[2];
  const lane = new Guaranteed('bridge', { send, close() {} }, around);
  t.teardown(() => lane.stop());
  await until(() => pending.size === 0);
  t.strictSame(
    stored,
    rows.map(({ id }) => id),
  );
  t.strictSame(failures, [], 'which is no failure');
});

t.test('a connection on which a batch has no outcome is ended, and the next batch opens another', async (t) => {
  let opened = 0;
  const ended: number[] = [];
  const target = targetOf<number>(
    {
      open: async () => {
        opened += 1;
        return opened;
      },
      endConnection: (connection) => ended.push(connection),
      send: (connection) =>
        connection === 1 ? new Promise(() => {}) : Promise.resolve(wholly([message(1)], { result: 'accepted' })),
    },
    { timeout: 1 },
  );
  t.match(await target.send([message(1)], { guaranteed: true }), [{ result: 'retry', about: 'target' }]);
  t.strictSame(ended, [1]);
  t.match(await target.send([message(1)], { guaranteed: true }), [{ result: 'accepted' }]);
});

t.end();
