/**
 * What each client must hear, may hear and must not hear, from the standards and docs/mqtt.md. Where the order of two things is
 * not known, because neither waited for the other, everything that is true of one of the orders is right.
 */
import type { Heard, History, Message, Session, Subscription } from './history.ts';

const isShared = ({ group }: Subscription) => group.startsWith('$share');
const last = (message: Message) => message.sent.at(-1) ?? Infinity;
const first = (message: Message) => message.sent[0] ?? Infinity;

/** Whether the service had to act on `one` before it could on `other`. */
function precedes(one: Message, other: Message): boolean {
  if (one.end < other.start) return true;
  // A message of QoS 2 may be passed on at PUBLISH or at PUBREL.
  const isOrdered = (one.qos === 2) === (other.qos === 2);
  return one.publisher === other.publisher && isOrdered && last(one) < first(other);
}

/** Subscriptions of a session to the topic of a message that may have been in force when it was passed on. */
function possible({ subscriptions, ended }: Session, message: Message): Subscription[] {
  return subscriptions.filter(
    (one) =>
      one.topics.includes(message.topic) && one.sent < message.end && message.start < Math.min(one.closed, ended),
  );
}

/** Whether they were in force from before the message was sent, and for ever. */
const isCertain = (one: Subscription, message: Message) => one.acked < message.start && one.closing === Infinity;

/** What a live session must hear and has not: messages, and retained ones. Empty messages cannot be told apart. */
export function missing(history: History): string[] {
  const lost: string[] = [];
  const messages = [...history.messages.values()].filter((one) => one.isTaken && !one.isEmpty && one.qos > 0);
  for (const session of history.sessions) {
    if (session.ended < Infinity) continue;
    const heard = new Set(session.heard.filter((one) => !one.retain).map((one) => one.message));
    const name = nameOf(session);
    for (const message of messages) {
      if (heard.has(message)) continue;
      const subscriptions = possible(session, message).filter((one) => !isShared(one));
      if (subscriptions.some((one) => isOwed(session, one, subscriptions, message)))
        lost.push(`lost: ${name} never heard ${describe(message)}`);
    }
    lost.push(...missingRetained(history, session, name));
  }
  return [...lost, ...missingShared(history, messages)];
}

function isOwed(session: Session, one: Subscription, others: Subscription[], message: Message): boolean {
  // A SUBSCRIBE for the same filter may have changed the QoS in between.
  const same = session.subscriptions.filter((other) => other.group === one.group && other.closed === Infinity);
  if (same.some(({ qos }) => qos === 0) || one.closing < Infinity) return false;
  if (isCertain(one, message)) return true;
  // It is in force once something that is not newer has been heard by it.
  if (others.length > 1 || one.acked === Infinity || message.isWill) return false;
  const alone = session.subscriptions.filter((other) => other.topics.includes(message.topic)).length === 1;
  return (
    alone &&
    session.heard.some(
      ({ message: before, qos, at, retain }) =>
        before !== undefined &&
        // What was retained stays so while others pass that are not.
        (!retain || message.retain) &&
        at > one.sent &&
        before.topic === message.topic &&
        before.publisher === message.publisher &&
        before.qos === message.qos &&
        !before.isWill &&
        qos > 0 &&
        last(before) < first(message),
    )
  );
}

/** Retained messages for subscriptions; where the connection did not last, when the session is back. */
function missingRetained(history: History, session: Session, name: string): string[] {
  const owed = session.subscriptions.filter((one) => one.wantsRetained && one.qos > 0 && one.acked < Infinity);
  return owed.flatMap((one) =>
    one.topics.flatMap((topic) => {
      const isCut = session.cuts.some((cut) => cut > one.sent);
      if (isCut && isReplaced(session, one)) return [];
      const { messages, mayBeNone } = retainedAt(history, topic, isCut ? { ...one, acked: Infinity } : one);
      if (messages.length === 0 || mayBeNone || (isCut && messages.some(({ qos }) => qos === 0))) return [];
      // Of several SUBSCRIBEs that wait for the same one copy may come.
      if (session.heard.some(({ retain, at, ...of }) => retain && of.topic === topic && at > one.sent)) return [];
      return [`no retained: ${name} heard no retained copy of ${messages.map(describe).join(' or ')}`];
    }),
  );
}

/** Whether a filter was given up, or subscribed to again. */
function isReplaced({ subscriptions }: Session, one: Subscription): boolean {
  return one.closing < Infinity || subscriptions.some((other) => other.group === one.group && other.sent > one.sent);
}

/** What may be retained on a topic when a SUBSCRIBE is seen to. */
function retainedAt(history: History, topic: string, { sent, acked }: Pick<Subscription, 'sent' | 'acked'>) {
  const writes = [...history.messages.values()].filter(
    (one) => one.retain && one.topic === topic && one.start < Infinity && one.qos >= 0,
  );
  const before = writes.filter((one) => one.end < sent);
  const candidates = writes.filter(
    // Copies may be taken until they are heard: `acked` bounds only what certainly came later.
    (one) => one.start < acked && !before.some((other) => other !== one && precedes(one, other)),
  );
  const messages = candidates.filter((one) => !one.isEmpty);
  return { messages, mayBeNone: before.length === 0 || candidates.some((one) => one.isEmpty) };
}

/** Messages for groups of which a member has been there all the time. */
function missingShared(history: History, messages: Message[]): string[] {
  const heard = new Set(history.sessions.flatMap((session) => session.heard.map((one) => one.message)));
  const lost: string[] = [];
  for (const message of messages) {
    if (heard.has(message)) continue;
    const isOwed = history.sessions.some(
      (session) =>
        session.ended === Infinity &&
        session.subscriptions.some(
          (one) => isShared(one) && one.topics.includes(message.topic) && isCertain(one, message),
        ),
    );
    if (isOwed) lost.push(`lost: no member of the group heard ${describe(message)}`);
  }
  return lost;
}

/** What was heard that must not be heard, or in a wrong order. */
export function wrong(history: History): string[] {
  const faults: string[] = [];
  for (const session of history.sessions) {
    const name = nameOf(session);
    for (const heard of session.heard)
      faults.push(...wrongCopy(history, session, heard).map((one) => `${one} at ${name}`));
    faults.push(...doubled(history, session).map((one) => `${one} at ${name}`));
    faults.push(...outOfOrder(history, session).map((one) => `${one} at ${name}`));
    faults.push(...olderThanRetained(session).map((one) => `${one} at ${name}`));
  }
  return [...faults, ...doubledInGroup(history)];
}

function wrongCopy(history: History, session: Session, heard: Heard): string[] {
  const { message, retain, at, qos } = heard;
  if (!message) return retain ? [`retained: an empty retained message on ${heard.topic}`] : [];
  if (message.start > at) return [`unsent: ${describe(message)} was heard before it was sent`];
  if (message.topic !== heard.topic) return [`topic: ${describe(message)} was heard on ${heard.topic}`];
  if (qos > message.qos) return [`QoS: ${describe(message)} came with QoS ${qos}`];
  if (retain) {
    const asked = session.subscriptions.filter(
      (one) => one.mayBringRetained && one.topics.includes(message.topic) && one.sent < at,
    );
    if (asked.length === 0) return [`retained: ${describe(message)} came as retained to nobody who asked`];
    // The copy may be looked up late, but it must be one that nothing had replaced before SUBSCRIBE.
    const isRight = asked.some(({ sent }) =>
      retainedAt(history, message.topic, { sent, acked: at }).messages.includes(message),
    );
    return isRight ? [] : [`stale: ${describe(message)} came as retained although something newer was`];
  }
  // A member gets what was for another one as well.
  const subscriptions = isForGroup(history, message)
    ? session.subscriptions.filter((one) => isShared(one) && one.sent < at)
    : possible(session, message);
  if (subscriptions.length === 0) return [`unwanted: ${describe(message)} came without a subscription`];
  // It may have waited for its turn, and has the QoS of then.
  const since = session.subscriptions.filter(
    (one) => one.topics.includes(message.topic) && one.sent < at && message.start < one.closed,
  );
  if (qos > Math.max(...since.map((one) => one.qos)))
    return [`QoS: ${describe(message)} came with QoS ${qos} for ${since.map((one) => one.qos)}`];
  return [];
}

/** Whether a group may have got it: its channel is for groups alone. */
const isForGroup = (history: History, message: Message) =>
  history.sessions.some((one) => possible(one, message).some(isShared));

/** Copies of one message: one at QoS 2, and at QoS 0 as many as were sent. */
function doubled(history: History, session: Session): string[] {
  const faults: string[] = [];
  const copies = new Map<Message, Heard[]>();
  for (const heard of session.heard) {
    // What was another member's may come as well: `doubledInGroup`.
    if (!heard.message || heard.retain || isForGroup(history, heard.message)) continue;
    const all = copies.get(heard.message) ?? [];
    all.push(heard);
    copies.set(heard.message, all);
  }
  for (const [message, all] of copies) {
    const twos = all.filter((one) => one.qos === 2).length;
    // One of QoS 0 may follow where a SUBSCRIBE has changed the QoS in between.
    const isAcknowledged = all.some((one) => one.qos > 0);
    const fresh = all.filter((one) => !one.dup && (one.qos > 0 || !isAcknowledged)).length;
    if (twos > 1) faults.push(`doubled: ${describe(message)} came ${twos} times at QoS 2`);
    else if (fresh > message.sent.length) faults.push(`repeated: ${describe(message)} came ${fresh} times without DUP`);
  }
  // Retained copies: one for each SUBSCRIBE, and one for each time that the session came back before it had all.
  const topics = new Set(session.heard.filter((one) => one.retain).map((one) => one.topic));
  for (const topic of topics) {
    const asked = session.subscriptions.filter((one) => one.mayBringRetained && one.topics.includes(topic)).length;
    const mayCome = asked > 0 ? asked + session.cuts.length : 0;
    const came = session.heard.filter((one) => one.retain && !one.dup && one.topic === topic).length;
    if (came > mayCome) faults.push(`retained: ${came} retained copies on ${short(topic)} for ${asked} SUBSCRIBE`);
  }
  return faults;
}

/** For each publisher, topic and QoS: in each connection, and what is new over all of them. */
function outOfOrder(history: History, session: Session): string[] {
  const faults: string[] = [];
  const lines = new Map<string, Array<Heard & { message: Message }>>();
  for (const heard of session.heard) {
    const { message, retain, qos } = heard;
    if (!message || retain || isForGroup(history, message)) continue;
    const key = `${message.publisher} ${message.topic} ${message.qos} ${qos}`;
    const line = lines.get(key) ?? [];
    line.push({ ...heard, message });
    lines.set(key, line);
  }
  for (const line of lines.values()) {
    const connections = new Set(line.map((one) => one.connection));
    for (const connection of connections)
      faults.push(
        ...disorder(
          line.filter((one) => one.connection === connection),
          'order',
        ),
      );
    const known = new Set<Message>();
    const news = line.filter(({ message }) => !known.has(message) && known.add(message));
    faults.push(...disorder(news, 'order over connections'));
  }
  return faults;
}

/** Whether they came as they were sent: each copy is matched with the first sending after that of the copy before. */
function disorder(line: Array<{ message: Message }>, kind: string): string[] {
  let at = 0;
  let before: Message | undefined;
  for (const { message } of line) {
    const place = message.sent.find((one) => one > at);
    if (place === undefined) return [`${kind}: ${describe(message)} came after ${before && describe(before)}`];
    at = place;
    before = message;
  }
  return [];
}

/** After the retained copy for a first subscription nothing older comes. */
function olderThanRetained(session: Session): string[] {
  const faults: string[] = [];
  for (const [n, heard] of session.heard.entries()) {
    const { message, topic, retain, dup } = heard;
    if (!message || !retain || dup || session.heard.some((one, m) => m < n && one.topic === topic)) continue;
    if (session.subscriptions.filter((one) => one.topics.includes(topic)).length > 1) continue;
    for (const { message: next, retain: isCopy } of session.heard.slice(n + 1)) {
      if (!next || isCopy || next.topic !== topic) continue;
      if (next === message && message.sent.length === 1)
        faults.push(`retained and live: ${describe(message)} came as both`);
      else if (next !== message && precedes(next, message))
        faults.push(`older: ${describe(next)} came after the retained ${describe(message)}`);
    }
  }
  return faults;
}

/** A message of QoS 2 reaches one member, but for one whose answer was lost. */
function doubledInGroup(history: History): string[] {
  const heard = new Map<Message, Array<{ session: Session; one: Heard }>>();
  for (const session of history.sessions)
    for (const one of session.heard) {
      if (!one.message || one.qos < 2 || !isForGroup(history, one.message)) continue;
      const all = heard.get(one.message) ?? [];
      all.push({ session, one });
      heard.set(one.message, all);
    }
  const faults: string[] = [];
  for (const [message, all] of heard) {
    const sure = all.filter(({ session, one }) => !session.cuts.some((cut) => cut > one.at) && session.ended > one.at);
    if (all.length > 1 && sure.length === all.length)
      faults.push(`doubled: ${describe(message)} came ${all.length} times to a group`);
  }
  return faults;
}

const short = (topic: string) => topic.slice(topic.lastIndexOf('/') + 1);
const nameOf = ({ client, level }: Session) => `client ${client} (level ${level})`;
function describe({ id, topic, qos, retain, isWill, sent }: Message): string {
  const more = `${retain ? ', retained' : ''}${isWill ? ', will' : ''}${sent.length > 1 ? `, sent ${sent.length} times` : ''}`;
  return `${id} (QoS ${qos} on ${short(topic)}${more})`;
}
