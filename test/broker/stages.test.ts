/** The stages of a message on its way through the broker, when one of them fails. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Ingest } from '../../broker/ingest/ingest.ts';
import type { Origin } from '../../broker/ingest/message.ts';
import { Rejections } from '../../broker/ingest/rejections.ts';
import type { Incoming } from '../../broker/message-types.ts';
import { Turns } from '../../broker/packets/turns.ts';
import { Publishing } from '../../broker/publish.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const fault = new Error('a fault');
const faulty = () => {
  throw fault;
};
const faultyLater = async () => faulty();

type Done = (failure?: Error, end?: { points: number; logs: number }) => void;

/** As the store, which goes on when somebody whom it calls throws. */
function say(done: Done, failure?: Error): void {
  try {
    done(failure, failure ? undefined : { points: 1, logs: 0 });
  } catch {}
}

/** What others do at the stages of a message. */
const usual = {
  readPoints: (): unknown => ({ points: [{}] }),
  splitPoints: (): unknown => ({ kept: [{}], reason: undefined }),
  outboxRowsOf: () => 0,
  refusal: (): Error | undefined => undefined,
  readLogEntry: (): unknown => ({}),
  setFields: (): unknown => Promise.resolve(),
  append: (done: Done) => void setImmediate(() => say(done)),
  takeMessage: (done: Done) => done(),
  keep: (done: Done) => done(),
  marks: () => {},
  acknowledge: () => {},
  handOn: (done: Done) => done(),
};
type Stages = Partial<typeof usual>;

const channels = {
  timeSeries: { name: 'x', service: false, persistenceType: 'timeSeries', payload: 'auto' },
  log: { name: '_log', service: true },
  fields: { name: '_set/fields', service: true },
};

interface Publication {
  channel?: keyof typeof channels;
  qos?: 0 | 1;
}

/** Publishes two messages of one connection, of which the first has these stages; what becomes of both, in order, and what at once. */
async function become(stages: Stages, { channel = 'timeSeries', qos = 1 }: Publication = {}) {
  const first: Stages = { ...stages };
  const take = <S extends keyof Stages>(name: S): (typeof usual)[S] => {
    const stage = first[name] ?? usual[name];
    delete first[name];
    return stage as (typeof usual)[S];
  };
  const counts = { failed: 0, rejected: 0, stored: 0, delivered: 0 };
  const services = {
    clock: { now: () => 0 },
    log: { error: () => {}, debug: () => {} },
    contents: {
      readPoints: () => take('readPoints')(),
      splitPoints: () => take('splitPoints')(),
      readLogEntry: () => take('readLogEntry')(),
    },
    messages: {
      ...{ fullFor: () => undefined, isNoRoom: () => false },
      append: (_: unknown, __: unknown, done: Done) => take('append')(done),
      appendLog: (_: unknown, done: Done) => take('append')(done),
    },
    bridges: {
      ...{ takes: () => true, outboxRowsOf: () => take('outboxRowsOf')(), refusal: () => take('refusal')() },
      takeMessage: (_: unknown, done: Done) => take('takeMessage')(done),
    },
    devices: { setFields: () => take('setFields')() },
  };
  const explaining = { explain: (_: unknown, __: unknown, ___: unknown, done: () => void) => done() };
  const rejections = new Rejections(services as never, explaining as never, { note: () => {} } as never);
  const ingest = new Ingest({
    ...{ services, rejections, marks: { stored: () => take('marks')() } },
    counters: { messages: { timeSeries: counts, _log: counts, '_set/fields': counts } },
    persistence: { keep: (_: unknown, __: unknown, done: Done) => take('keep')(done), lacksRoomFor: () => undefined },
    reports: { take: (_: unknown, handle: () => unknown) => handle() },
  } as never);
  const route = { accountId: 'a', deviceId: 'd', channel: channels[channel] };
  const publishing = new Publishing({
    ...{ services, ingest, rejections, presence: { message: () => {} }, activity: { message: () => {} } },
    authority: { decidePublish: () => ({ verdict: 'accepted', route }), noteIfFormer: () => {} },
    checks: { refusalOf: () => undefined },
    fanOut: { countReceivers: () => 0 },
    counters: { acknowledgement: { observe: () => {} } },
    routing: { isClosed: false, publish: (_: unknown, done: () => void) => take('handOn')(done) },
  } as never);
  const ended: string[] = [];
  const turns = new Turns();
  const client = { id: 'd', closed: false, charge: () => {} };
  for (const topic of ['first', 'second']) {
    const origin = {
      ...{ live: { client, turns, hasPublished: true }, isRefusedTooOften: () => false },
      acknowledge: () => take('acknowledge')(),
      end: (_: unknown, failure?: Error | null) => {
        const why = (failure?.cause ?? failure) as Error | undefined;
        ended.push(`${topic}: ${why?.message ?? 'handed on'}`);
      },
    } as unknown as Origin;
    const packet = { cmd: 'publish', topic, payload: Buffer.from('x'), qos, retain: false, dup: false } as Incoming;
    publishing.publish({ caller: { kind: 'device', id: 'd' } } as never, packet, origin);
  }
  const atOnce = [...ended];
  await ingest.idle();
  // Whatever is still to come, such as a second end.
  for (let turn = 0; turn < 10; turn += 1) await nextTurn();
  return { ended, atOnce, failed: counts.failed, pending: ingest.pending };
}

/** What fails before a message is on disk, by what it is. */
const notStored: Record<string, [Stages, Publication?]> = {
  'cannot be read': [{ readPoints: faulty }],
  'cannot be read by a thread': [{ readPoints: faultyLater }],
  'has points that cannot be split': [{ splitPoints: faulty }],
  'has a cost that cannot be told': [{ outboxRowsOf: faulty }],
  'is refused for its bridges': [{ refusal: () => fault }],
  'is not stored': [{ append: (done) => void setImmediate(() => say(done, fault)) }],
  'throws in the store': [{ append: faulty }],
  'throws in the store, which has taken it': [
    {
      append: (done) => {
        setImmediate(done);
        throw fault;
      },
    },
  ],
  'has no marks': [{ marks: faulty }],
  'is not taken by its bridges': [{ takeMessage: (done) => void setImmediate(() => say(done, fault)) }],
  'throws in its bridges': [{ takeMessage: faulty }],
  'is a log entry that cannot be read': [{ readLogEntry: faulty }, { channel: 'log' }],
  'is a log entry that is not stored': [
    { append: (done) => void setImmediate(() => say(done, fault)) },
    { channel: 'log' },
  ],
  'is not handled': [{ setFields: faultyLater }, { channel: 'fields' }],
  'has been handled and is not kept': [{ keep: faulty }, { channel: 'fields' }],
};
/** And what only of a message that is kept for sessions and acknowledged. */
const promised: Record<string, [Stages, Publication?]> = {
  'is not kept for sessions': [{ keep: (done) => done(fault) }],
  'is not kept for sessions, later': [{ keep: (done) => void setImmediate(() => say(done, fault)) }],
  'throws in the sessions, while the store has it': [{ keep: faulty }],
};

t.test('a message that cannot be stored ends once, with the fault, and those behind it go on', async (t) => {
  for (const [what, [stages, publication]] of Object.entries({ ...notStored, ...promised })) {
    const { ended, failed, pending } = await become(stages, publication);
    t.same({ ended, failed, pending }, { ended: ['first: a fault', 'second: handed on'], failed: 1, pending: 0 }, what);
  }
});

t.test('one of QoS 0 is handed on all the same, in its place, and counts once', async (t) => {
  for (const [what, [stages, publication]] of Object.entries(notStored)) {
    if (publication?.channel === 'fields') continue;
    const { ended, failed, pending } = await become(stages, { ...publication, qos: 0 });
    t.same(
      { ended, failed, pending },
      { ended: ['first: handed on', 'second: handed on'], failed: 1, pending: 0 },
      what,
    );
  }
});

t.test('a message that cannot be acknowledged or handed on ends once, with the fault', async (t) => {
  const later: Stages['handOn'] = (done) => void setImmediate(() => done(fault));
  for (const [what, stages] of Object.entries({
    'is not acknowledged': { acknowledge: faulty },
    'throws when it is handed on': { handOn: faulty },
    'is not handed on': { handOn: (done: Done) => done(fault) },
  }))
    t.same((await become(stages)).ended, ['first: a fault', 'second: handed on'], what);
  t.same((await become({ handOn: later })).ended, ['second: handed on', 'first: a fault']);
});

t.test('QoS 0 waits only for its place before the store', async (t) => {
  const { ended, atOnce } = await become({}, { qos: 0 });
  t.same(atOnce, ['first: handed on', 'second: handed on']);
  t.same(ended, atOnce);
});

t.test('a message is acknowledged and handed on before the store says that the next one is on disk', async (t) => {
  const steps: string[] = [];
  await become({
    append: (done) =>
      void setImmediate(() => {
        say(done);
        steps.push('stored');
      }),
    marks: () => void steps.push('marked'),
    acknowledge: () => void steps.push('acknowledged'),
    handOn: (done) => {
      steps.push('handed on');
      done();
    },
  });
  t.same(steps, ['marked', 'acknowledged', 'handed on', 'stored']);
});

t.test('a message whose end is said twice ends once', async (t) => {
  const twice: Stages['handOn'] = (done) => {
    done();
    done();
  };
  t.same((await become({ handOn: twice })).ended, ['first: handed on', 'second: handed on']);
});

t.end();
