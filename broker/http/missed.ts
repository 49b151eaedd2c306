import { maxMissed, type SeriesRow } from '../../db/messages/series/missed.ts';
import { everything, type LogEntry, type StoredPoint } from '../../db/messages/store.ts';
import type { StoreEnd } from '../../db/messages/threads/protocol.ts';
import { type Heard, isHeard } from '../../src/core/history-window.ts';
import { LongWork } from '../../src/core/scheduler/long-work.ts';
import { formatTopic } from '../../src/core/topics.ts';
import type { BrokerServices } from '../../src/ports/broker-ports.ts';
import { matches } from '../topics.ts';

/** Characters in the messages that are sent again at most; who has missed more is told so. */
const maxCharacters = 4 * 1024 * 1024;
/** Series and log entries that are looked at for one reader; what a series that is meant costs of them; rows in one go. */
const maxRowsRead = 1_000_000;
const looksOfSeries = 5;
const rowsAtOnce = 200;

/** A stored message, as it is sent again; `place` is its own. */
export interface Missed {
  topic: string;
  payload: string;
  time: number;
  place: StoreEnd;
}

/** Bytes that a message takes while it waits to be sent again, next to its text. */
const aroundMissed = 200;

/** What a message takes of memory, about. */
export function bytesOfMissed({ payload }: Missed): number {
  return aroundMissed + payload.length;
}

/** A reader that was away, and the range that it missed. */
export interface Absence {
  accountId: string;
  filters: readonly string[];
  mayHear(topic: string): Heard;
  from: Readonly<StoreEnd>;
  to: Readonly<StoreEnd>;
}

/** Thrown when there is more than is sent again. */
export class TooMuchMissed extends Error {}

/** The remaining budget of one reader. */
interface Budget {
  looks: number;
  characters: number;
  longWork: LongWork;
}

type MissedServices = Pick<BrokerServices, 'messages' | 'access' | 'config'>;

/**
 * What was stored during an absence: points in the order in which they came, then log entries. In steps between which
 * others get their turn. @throws TooMuchMissed
 */
export async function readMissed(services: MissedServices, absence: Absence): Promise<Missed[]> {
  const found: Missed[] = [];
  const budget = { looks: maxRowsRead, characters: maxCharacters, longWork: new LongWork() };
  budget.longWork.beginSlice();
  if (absence.from.points < absence.to.points)
    for await (const { row, ...seen } of seriesOf(services, absence, budget))
      await addPoints(services, absence, row, seen, found, budget);
  found.sort((a, b) => a.place.points - b.place.points);
  if (absence.from.logs < absence.to.logs) await addLogs(services, absence, found, budget);
  return found;
}

/** A topic, and what may be told of its device. */
interface SeenTopic {
  topic: string;
  heard: Heard;
}

/** The series that the filters can mean and that may be heard now. */
async function* seriesOf({ messages, access, config }: MissedServices, absence: Absence, budget: Budget) {
  const { accountId, filters } = absence;
  const depth = config.topicRoot.split('/').length + 2;
  const devices = new Set(filters.map((filter) => filter.split('/')[depth] ?? '#'));
  const isWide = filters.some((filter) => filter.split('/').slice(0, depth).includes('#'));
  const topicOf = ({ deviceId, channelTemplateId }: SeriesRow): string | undefined => {
    const template = access.placement(deviceId)?.deviceTemplateId;
    if (template === undefined) return undefined;
    for (const { id, name, persistenceType } of access.channelsOf(template).values())
      if (id === channelTemplateId && persistenceType === 'timeSeries')
        return formatTopic(config.topicRoot, accountId, deviceId, name);
    return undefined;
  };
  const seenOn = (row: SeriesRow): (SeenTopic & { row: SeriesRow }) | undefined => {
    const topic = topicOf(row);
    if (topic === undefined || !filters.some((filter) => matches(filter, topic))) return undefined;
    const heard = absence.mayHear(topic);
    const isSeen = typeof heard === 'boolean' ? heard : heard.first <= row.possession;
    return isSeen ? { row, topic, heard } : undefined;
  };
  if (!isWide && !devices.has('+') && !devices.has('#')) {
    for (const deviceId of devices)
      for (const row of messages.missed.seriesOf(accountId, deviceId)) {
        const seen = seenOn(row);
        if (seen) yield seen;
      }
    return;
  }
  for (let after = 0; ; ) {
    const page = messages.missed.seriesAfter(accountId, after, rowsAtOnce);
    spend(budget, page.length);
    for (const row of page) {
      const seen = seenOn(row);
      if (seen) yield seen;
    }
    const last = page.at(-1);
    if (!last) return;
    after = last.id;
    await budget.longWork.giveWay();
  }
}

/**
 * The newest points by time, back to the first that is known: whatever came since is behind it, or listed as late. So
 * nothing else is read, whatever the clocks of devices say.
 */
async function addPoints(
  { messages: { missed } }: MissedServices,
  { from, to }: Absence,
  { id, lateAfter }: SeriesRow,
  { topic, heard }: SeenTopic,
  found: Missed[],
  budget: Budget,
): Promise<void> {
  const take = (points: readonly StoredPoint[]) => {
    spend(budget, points.length);
    for (const point of points) {
      if (point.sequence > to.points || !isHeard(heard, point.time)) continue;
      const place = { points: point.sequence, logs: from.logs };
      add(found, { topic, payload: pointPayload(point), time: point.time, place }, budget);
    }
  };
  spend(budget, looksOfSeries);
  let newest = missed.newest(id, from.points, { time: everything.to, sequence: 0 }, rowsAtOnce);
  while (newest.known === undefined) {
    const last = newest.points.at(-1);
    if (!last) return;
    take(newest.points);
    await budget.longWork.giveWay();
    newest = missed.newest(id, from.points, last, rowsAtOnce);
  }
  take(newest.points);
  const { known } = newest;
  if (from.points < lateAfter) throw new TooMuchMissed();
  for (let late = missed.late(id, from.points, rowsAtOnce); late.length > 0; ) {
    take(late.filter(({ time }) => time < known));
    await budget.longWork.giveWay();
    late = missed.late(id, late.at(-1)?.sequence ?? 0, rowsAtOnce);
  }
}

async function addLogs(
  { messages, config }: MissedServices,
  absence: Absence,
  found: Missed[],
  budget: Budget,
): Promise<void> {
  const { accountId, filters, from, to } = absence;
  for (let after = from.logs; after < to.logs; ) {
    const page = messages.missed.logs(accountId, after, rowsAtOnce);
    spend(budget, page.length);
    for (const entry of page) {
      // The service's own entries about connections are never published.
      if (entry.sequence > to.logs || entry.byService) continue;
      const topic = formatTopic(config.topicRoot, accountId, entry.deviceId, '_log');
      const heard = filters.some((filter) => matches(filter, topic)) && absence.mayHear(topic);
      if (!isHeard(heard, entry.received) || !isHeard(heard, entry.time)) continue;
      const place = { points: to.points, logs: entry.sequence };
      add(found, { topic, payload: logPayload(entry), time: entry.received, place }, budget);
    }
    const last = page.at(-1);
    if (!last) return;
    after = last.sequence;
    await budget.longWork.giveWay();
  }
}

function add(found: Missed[], missed: Missed, budget: Budget): void {
  budget.characters -= missed.payload.length;
  if (found.length >= maxMissed || budget.characters < 0) throw new TooMuchMissed();
  found.push(missed);
}

function spend(budget: Budget, looks: number): void {
  budget.looks -= looks;
  if (budget.looks < 0) throw new TooMuchMissed();
}

/** A line of CSV, or SenML (RFC 8428) where a line cannot say it. */
function pointPayload({ time, category, numericValue, stringValue }: StoredPoint): string {
  const plain = !/[,\r\n]|^\s|\s$/.test(category) && !/[\r\n]|^\s|\s$/.test(stringValue ?? '');
  if (plain) return `${time},${category},${numericValue ?? ''},${stringValue ?? ''}`;
  const value = { ...(numericValue !== null && { v: numericValue }), ...(stringValue !== null && { vs: stringValue }) };
  return JSON.stringify([{ n: category, t: time / 1000, ...value }]);
}

/** As `_log` takes it. */
function logPayload({ message, details, severity, code, tags, custom, time }: LogEntry): string {
  const texts = Object.entries({ message, details, code }).filter(([, text]) => text !== null);
  const about = { ...Object.fromEntries(texts), severity, ...(tags.length > 0 && { tags }), ...(custom && { custom }) };
  return JSON.stringify({ ...about, sourceTimestamp: new Date(time).toISOString() });
}
