/** One walk in the topics of a device, from nothing to nothing. */
import { setTimeout as later, setImmediate as nextTurn } from 'node:timers/promises';
import { type Place, WalkClient } from './client.ts';
import { History, tell } from './history.ts';
import { missing, wrong } from './model.ts';
import { channels, filters, type Step, sharedChannel, sharedFilter, type Walk } from './steps.ts';

/** Milliseconds without anything new after which what is missing may be lost. */
const patience = 4000;
/**
 * Conversations of somebody else that end meanwhile before it is: together as many packets as the clients of a walk may have on
 * their way, which the service may read without a word. And milliseconds that they may take.
 */
const conversations = 4;
const packets = 3000;
const longest = 300_000;
let walks = 0;

export interface Taken {
  faults: string[];
  /** What happened, if there are faults. */
  story: string[];
}

/** Takes the steps, brings everybody back, and says what is wrong; the topics are then as before. */
export async function take(place: Place, walk: Walk): Promise<Taken> {
  walks += 1;
  const history = new History(walks);
  const clients = walk.levels.map(
    (level, n) => new WalkClient(n, level, `w${walks}-${n}`, walk.forgetsDup[n] ?? false, place, history),
  );
  let doing = '';
  const taking = async () => {
    for (const [n, step] of walk.steps.entries()) {
      doing = `step ${n}, client ${step.client} ${step.kind}`;
      await taken(clients, step, place);
    }
    doing = 'the return of all clients';
    await comeBack(clients);
    clients.push(await observer(clients.length, place, history));
    const lost = await settled(clients, history, place);
    const faults = [...history.faults, ...lost, ...wrong(history)];
    doing = `the end; ${faults}`;
    await tidied(clients, place);
    return faults;
  };
  const watch = new AbortController();
  try {
    const stuck = stillness(history, place, watch.signal).then(() => [
      `stuck: nothing is answered at ${doing}`,
      ...history.faults,
    ]);
    const faults = await Promise.race([taking(), stuck]);
    return { faults, story: faults.length > 0 ? tell(history) : [] };
  } finally {
    watch.abort();
    for (const { link } of clients) link?.socket.destroy();
  }
}

/** Resolves when nothing happens any more, and it is not the machine. */
async function stillness(history: History, place: Place, signal: AbortSignal): Promise<void> {
  for (let moment = -1; moment !== history.moment || !(await staysQuiet(history, place, signal)); ) {
    moment = history.moment;
    await later(3 * patience, undefined, { signal }).catch(() => {});
    if (signal.aborted) return;
  }
}

/** Whether nothing comes while somebody else has long conversations with the service: a busy machine slows those as well. */
async function staysQuiet(history: History, place: Place, signal?: AbortSignal): Promise<boolean> {
  const { moment } = history;
  const watch = new AbortController();
  const goesOn = () => history.moment === moment && !watch.signal.aborted && !signal?.aborted;
  const converse = async () => {
    const elsewhere = await place.another();
    const topic = elsewhere.topic(channels[0]);
    walks += 1;
    const other = new WalkClient(0, 4, `w${walks}-other`, false, elsewhere, new History(walks));
    for (let n = 0; n < conversations && goesOn(); n += 1) {
      await other.connect({ fresh: false, keep: true });
      other.subscribe(topic, [topic], topic, 1, 0);
      other.publish(topic, { qos: 1, retain: false });
      await Promise.all(Array.from({ length: packets }, () => other.link?.ping()));
      while (other.isConnected && other.outgoing.size > 0 && goesOn()) await other.link?.ping();
      await other.leave();
    }
    await other.connect({ fresh: true, keep: false });
    await other.leave();
  };
  const tooLong = later(longest, undefined, { signal: watch.signal }).catch(() => {});
  await Promise.race([converse(), tooLong]).finally(() => watch.abort());
  return history.moment === moment;
}

async function taken(clients: WalkClient[], step: Step, place: Place): Promise<void> {
  const client = clients[step.client];
  if (!client) return;
  if (step.kind === 'connect') {
    // A client that lost what it was told cannot say what the service knows: it cuts the connection.
    await client.connect({ ...step, waits: step.waits || step.gap !== 'none' });
  } else if (step.kind === 'publish') {
    const topic = place.topic(channels[step.channel] as string);
    for (let n = 0; n < step.count; n += 1) client.publish(topic, step);
  } else if (step.kind === 'subscribe' || step.kind === 'unsubscribe') {
    const { filter, topics, group } = filterOf(step.filter, place);
    if (step.kind === 'subscribe') client.subscribe(filter, topics, group, step.qos, step.handling);
    else client.unsubscribe(filter, group);
  } else if (step.kind === 'hold') client.hold();
  else if (step.kind === 'pause') client.pause();
  else if (step.kind === 'go') client.go();
  else if (step.kind === 'cut') await client.cut();
  else if (step.kind === 'leave') await client.leave();
  else if (step.kind === 'settle') for (const one of clients) await one.link?.ping();
  else if (client.isConnected && client.link) {
    if (step.kind === 'deaf') client.link.isDeaf = client.link.isOpen;
    else client.link.isMute = client.link.isOpen;
  }
  if (step.gap === 'turn') await nextTurn();
  if (step.gap === 'ping') await client.link?.ping();
}

function filterOf(n: number, place: Place) {
  if (n === sharedFilter) {
    const filter = `$share/g/${place.topic(channels[sharedChannel] as string)}`;
    return { filter, topics: [place.topic(channels[sharedChannel] as string)], group: filter };
  }
  const one = filters[n] as (typeof filters)[number];
  const filter = one.write(place.topic);
  return { filter, topics: one.channels.map((channel) => place.topic(channels[channel] as string)), group: filter };
}

/** Connects every client that has a session, so that it is sent all that it may still hear. */
async function comeBack(clients: WalkClient[]): Promise<void> {
  for (const client of clients) {
    if (client.isConnected) {
      client.go();
      await client.link?.opened;
      if (!client.isWell) await client.cut();
    }
    if (!client.isConnected && client.session.ended === Infinity) await client.connect({ fresh: false, keep: true });
  }
}

/** Somebody new, who hears what is retained in the end. */
async function observer(number: number, place: Place, history: History): Promise<WalkClient> {
  const client = new WalkClient(number, 4, `w${walks}-observer`, false, place, history);
  await client.connect({ fresh: true, keep: false });
  for (let n = 0; n < sharedChannel; n += 1) {
    const { filter, topics, group } = filterOf(n, place);
    client.subscribe(filter, topics, group, 1, 0);
  }
  return client;
}

/** What is missing in the end. */
async function settled(clients: WalkClient[], history: History, place: Place): Promise<string[]> {
  const open = () =>
    clients.flatMap(({ isConnected, outgoing, number }) =>
      isConnected && outgoing.size > 0 ? [`unanswered: ${outgoing.size} messages of client ${number}`] : [],
    );
  const left = () => [...open(), ...missing(history)];
  let deadline = Date.now() + patience;
  let lost: string[] = [];
  let moment = 0;
  for (let round = 0; ; round += 1) {
    for (const { link } of clients) await link?.ping();
    // Small windows make long queues slow.
    if (history.moment > moment) deadline = Date.now() + patience;
    moment = history.moment;
    lost = left();
    if (lost.length === 0 && round >= 1) return [];
    if (Date.now() > deadline && (await staysQuiet(history, place))) return left();
    if (lost.length > 0) await later(Math.min(5 * (round + 1), 100));
  }
}

/** Ends the sessions and takes what is retained away. */
async function tidied(clients: WalkClient[], place: Place): Promise<void> {
  for (const client of clients) await client.leave();
  for (const client of clients) {
    if (!client.session.isStored && client !== clients[0]) continue;
    await client.connect({ fresh: true, keep: false });
    if (client === clients[0]) {
      for (const name of channels) client.publish(place.topic(name), { qos: 1, retain: true, isEmpty: true });
      await client.link?.ping();
      while (client.outgoing.size > 0 && client.isConnected && !client.link?.socket.destroyed)
        await client.link?.ping();
    }
    await client.leave();
  }
}
