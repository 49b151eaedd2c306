/** The log at a million entries: storing and indexing them, pages of one device, texts, searches over the account. */

import { statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { MessageStore, type NewLogEntry, severities } from '../db/series.js';
import { openSqlite } from '../db/sqlite.js';
import { readConfig } from '../src/config.js';
import { startServer } from '../src/server.js';
import { seedAdmin } from './seed.js';

const entries = 1_000_000;
/** One device speaks as much as all others together. */
const talkative = 2;
const devicesUsed = 1000;
const perTurn = 5000;
const rounds = 60;
const warmUp = 3;
const vocabulary =
  'pump motor valve temperature exceeded threshold restart network timeout connection refused sensor battery low voltage calibration firmware update failed retry watchdog reset humidity reading out of range'.split(
    ' ',
  );

/** Measures in `directory`, which holds a seeded registry; fills its log first. */
export async function measureLogs(directory: string): Promise<void> {
  const env = {
    SLIPWAY_DATA_DIR: directory,
    SLIPWAY_HTTP_PORT: '0',
    SLIPWAY_MQTT_PORT: '0',
    SLIPWAY_LOG_LEVEL: 'warn',
  };
  let server = await startServer(readConfig(env));
  const { registry } = server.ctx;
  const devices = await registry.query.selectFrom('devices').select(['id', 'accountId']).limit(devicesUsed).execute();
  const [quiet, loud] = [devices[1], devices[0]];
  if (!quiet || !loud) throw new Error('The registry has no devices.');
  const { accountId } = loud;
  await server.close();

  const store = await MessageStore.open(directory, { log: console, now: () => Date.now() });
  await fill(
    store,
    devices.map(({ id }) => id),
    accountId,
  );
  await index(directory);
  console.log(`messages.db: ${Math.round(statSync(join(directory, 'messages.db')).size / entries)} bytes an entry`);

  server = await startServer(readConfig(env));
  try {
    const login = await fetch(`${server.url}/api/v1/auth/login-user`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ accountId, emailAddress: seedAdmin.email, password: seedAdmin.password }),
    });
    const { jwt } = (await login.json()) as { jwt: string };
    const headers = { authorization: `Bearer ${jwt}`, 'content-type': 'application/json' };
    const get = (name: string, id: string, query: string) =>
      time(name, () => fetch(`${server.url}/api/v1/devices/${id}/logs?${query}`, { headers }));
    const search = (name: string, must: object[], more: object = {}) => {
      const body = JSON.stringify({ query: { bool: { must } }, ...more });
      return time(name, () => fetch(`${server.url}/api/v1/logs/search`, { method: 'POST', headers, body }));
    };
    await get('GET, a device with 500 entries', quiet.id, 'pageSize=100');
    await get('GET, a device with 500,000 entries', loud.id, 'pageSize=100');
    await get('GET, the same, errors', loud.id, 'severity=error&pageSize=100');
    await get('GET, text, 500 entries', quiet.id, 'text=atchdo');
    await get('GET, rare text, 500,000 entries', loud.id, 'text=needle');
    await get('GET, frequent text, 500,000 entries', loud.id, 'text=atchdo');
    await get('GET, text of two letters, 500,000 entries', loud.id, 'text=%239');
    await search('search, everything', []);
    await search('search, term severity emergency', [{ term: { severity: 'emergency' } }]);
    await search('search, match of a rare word', [{ match: { message: 'needle' } }]);
    await search('search, match of two frequent words', [
      { match: { message: { query: 'watchdog pump', operator: 'and' } } },
    ]);
    await search('search, match by score', [{ match: { message: 'watchdog pump valve' } }]);
    const since = new Date(Date.now() - 60_000).toISOString();
    await search('search, term and range', [
      { term: { severity: 'error' } },
      { range: { sourceTimestamp: { lt: since } } },
    ]);
    await search('search, one property of its own', [{ term: { 'custom.n': 500_000 } }]);
  } finally {
    await server.close();
  }
}

async function fill(store: MessageStore, devices: string[], accountId: string): Promise<void> {
  const started = performance.now();
  const begin = Date.now() - entries;
  let stored = 0;
  const seconds = () => Math.round((performance.now() - started) / 100) / 10;
  for (let n = 0; n < entries; n += perTurn) {
    const turn: Array<Promise<void>> = [];
    for (let at = n; at < n + perTurn; at += 1) turn.push(append(store, entryOf(at, begin + at, devices, accountId)));
    await Promise.all(turn);
    stored += turn.length;
  }
  console.log(`stored ${stored} entries in ${seconds()} s, ${Math.round(stored / seconds())} a second, each on disk`);
  await store.close();
}

/** Waits until the index has everything: what a flood leaves is indexed as soon as there is time. */
async function index(directory: string): Promise<void> {
  const started = performance.now();
  const store = await MessageStore.open(directory, { log: console, now: () => Date.now() });
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

async function time(name: string, request: () => Promise<Response>): Promise<void> {
  const times: number[] = [];
  let said = '';
  for (let round = 0; round < warmUp + rounds; round += 1) {
    const started = performance.now();
    const response = await request();
    const text = await response.text();
    if (round >= warmUp) times.push(performance.now() - started);
    const body = JSON.parse(text);
    said = response.ok
      ? `${body.logs?.meta.count ?? body.hits.total} found`
      : `${response.status} ${body.error.details[0]?.message}`;
    if (times.length >= 5 && times.reduce((sum, one) => sum + one, 0) > 20_000) break;
  }
  times.sort((a, b) => a - b);
  const at = (share: number) => (times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0).toFixed(1);
  console.log(`${name.padEnd(44)} p50 ${at(0.5).padStart(7)} ms  p95 ${at(0.95).padStart(7)} ms  ${said}`);
}
