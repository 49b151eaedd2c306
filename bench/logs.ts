/** The log at a million entries: storing and indexing them, pages of one device, texts, searches over the account. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { MessageStore, type NewLogEntry, severities } from '../db/messages/store.ts';
import { openSqlite } from '../db/sqlite/open.ts';
import { newId } from '../src/ids.ts';
import { logIn } from './api.ts';
import { at, described, type Row } from './figures.ts';
import type { ServingService } from './processes.ts';
import type { Bench } from './sizes.ts';

/** One for each of so many of `Size.points`. */
const share = 10;
/** One device speaks as much as all others together. */
const talkative = 2;
const devicesUsed = 1000;
const perTurn = 5000;
const warmUp = 3;
/** Milliseconds after which a slow question is not asked again. */
const longest = 20_000;
const vocabulary =
  'pump motor valve temperature exceeded threshold restart network timeout connection refused sensor battery low voltage calibration firmware update failed retry watchdog reset humidity reading out of range'.split(
    ' ',
  );

/** Fills the log of 2,000 devices and asks. */
export async function measureLogs({ size, directory: lend, serve }: Bench): Promise<Row[]> {
  const directory = await lend(2000);
  const entries = Math.round(size.points / share);
  const file = openSqlite(join(directory, 'registry.db'), { readonly: true });
  const accountId = file.prepare('SELECT "id" FROM "accounts" LIMIT 1').pluck().get() as string;
  const devices = file.prepare('SELECT "id" FROM "devices" LIMIT ?').pluck().all(devicesUsed) as string[];
  file.close();
  const [loud, quiet] = devices;
  const store = await MessageStore.open(directory, { log: console });
  const perSecond = await fill(store, devices, accountId, entries);
  await index(directory, entries);
  console.log(`messages.db: ${Math.round(statSync(join(directory, 'messages.db')).size / entries)} bytes an entry`);

  const server = await serve(directory);
  try {
    const half = `${(entries / 2).toLocaleString('en')} entries`;
    const asked = await askAll(server, accountId, { loud, quiet, half, entries, asks: size.asks });
    return [{ what: 'Log entries stored, each on disk', ours: perSecond, unit: '/s' }, ...asked];
  } finally {
    await server.stop();
  }
}

interface Asked {
  loud: string | undefined;
  quiet: string | undefined;
  /** What the loud one has, in words. */
  half: string;
  entries: number;
  asks: number;
}

async function askAll(
  server: ServingService,
  accountId: string,
  { loud, quiet, half, entries, asks }: Asked,
): Promise<Row[]> {
  const { url } = server;
  const { token } = await logIn(server, accountId);
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const rows: Row[] = [];
  const say = async (what: string, request: () => Promise<Response>) => {
    const times = await time(what, request, asks);
    rows.push({ what: `Logs: ${what}, p95`, ours: at(times, 0.95), unit: 'ms' });
  };
  const get = (what: string, id: string | undefined, query: string) =>
    say(what, () => fetch(`${url}/devices/${id}/logs?${query}`, { headers }));
  const search = (what: string, must: object[]) => {
    const body = JSON.stringify({ query: { bool: { must } } });
    return say(what, () => fetch(`${url}/logs/search`, { method: 'POST', headers, body }));
  };
  await get('GET, a device with few entries', quiet, 'pageSize=100');
  await get(`GET, a device with ${half}`, loud, 'pageSize=100');
  await get('GET, the same, errors', loud, 'severity=error&pageSize=100');
  await get('GET, text, few entries', quiet, 'text=atchdo');
  await get(`GET, rare text, ${half}`, loud, 'text=needle');
  await get(`GET, frequent text, ${half}`, loud, 'text=atchdo');
  await get(`GET, text of two letters, ${half}`, loud, 'text=%239');
  await search('search, everything', []);
  await search('search, term severity emergency', [{ term: { severity: 'emergency' } }]);
  await search('search, match of a rare word', [{ match: { message: 'needle' } }]);
  const both = { query: 'watchdog pump', operator: 'and' };
  await search('search, match of two frequent words', [{ match: { message: both } }]);
  await search('search, match by score', [{ match: { message: 'watchdog pump valve' } }]);
  const since = new Date(Date.now() - 60_000).toISOString();
  const range = { range: { sourceTimestamp: { lt: since } } };
  await search('search, term and range', [{ term: { severity: 'error' } }, range]);
  await search('search, one property of its own', [{ term: { 'custom.n': entries / 2 } }]);
  return rows;
}

/** Entries a second, each on disk. */
async function fill(store: MessageStore, devices: string[], accountId: string, entries: number): Promise<number> {
  const started = performance.now();
  const begin = Date.now() - entries;
  let stored = 0;
  for (let n = 0; n < entries; n += perTurn) {
    const turn: Array<Promise<void>> = [];
    for (let at = n; at < n + perTurn; at += 1) turn.push(append(store, entryOf(at, begin + at, devices, accountId)));
    await Promise.all(turn);
    stored += turn.length;
  }
  const seconds = (performance.now() - started) / 1000;
  console.log(
    `stored ${stored} entries in ${seconds.toFixed(1)} s, ${Math.round(stored / seconds)} a second, each on disk`,
  );
  await store.close();
  return stored / seconds;
}

/** Waits until the index has everything: what a flood leaves is indexed as soon as there is time. */
async function index(directory: string, entries: number): Promise<void> {
  const started = performance.now();
  const store = await MessageStore.open(directory, { log: console });
  const file = openSqlite(join(directory, 'messages.db'), { readonly: true });
  const waiting = file
    .prepare<[], number>(`SELECT ${entries} - "value" FROM "counters" WHERE "name" = 'logsIndexed'`)
    .pluck();
  const left = waiting.get();
  while ((waiting.get() ?? 0) > 0) await wait(100);
  console.log(`indexed the last ${left} of them in ${Math.round(performance.now() - started)} ms`);
  file.close();
  await store.close();
}

function entryOf(n: number, time: number, devices: string[], accountId: string): NewLogEntry {
  const word = (k: number) => vocabulary[(Math.imul(n + 1, 2654435761 + k * 40503) >>> 8) % vocabulary.length];
  const words = Array.from({ length: 9 }, (_, k) => word(k));
  if (n % 50_000 < 2) words[4] = 'needle';
  return {
    id: newId(accountId),
    accountId,
    deviceId: (n % talkative === 0 ? devices[0] : devices[(n >> 1) % devices.length]) as string,
    time,
    received: time,
    severity: n % 100_000 === 0 ? 'emergency' : (severities[3 + (n % 5)] ?? 'info'),
    message: `${words.join(' ')} #${n}`,
    code: `E${n % 100}`,
    details: null,
    tags: [],
    custom: { n },
  };
}

function append(store: MessageStore, entry: NewLogEntry): Promise<void> {
  return new Promise((resolve, reject) => store.appendLog(entry, (error) => (error ? reject(error) : resolve())));
}

async function time(what: string, request: () => Promise<Response>, asks: number): Promise<number[]> {
  const times: number[] = [];
  let said = '';
  for (let round = -warmUp; round < asks; round += 1) {
    const started = performance.now();
    const response = await request();
    const text = await response.text();
    if (round >= 0) times.push(performance.now() - started);
    const body = JSON.parse(text);
    said = response.ok
      ? `${body.logs?.meta.count ?? body.hits.total} found`
      : `${response.status} ${body.error.details[0]?.message}`;
    if (times.length >= 5 && times.reduce((sum, one) => sum + one, 0) > longest) break;
  }
  console.log(`${what.padEnd(44)} ${described(times)}  ${said}`);
  return times;
}
