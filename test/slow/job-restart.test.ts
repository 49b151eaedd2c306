/** Jobs and the end of the process: whatever ends it, each row is done once, and no secret is lost. */
import Sqlite from 'better-sqlite3';
import mqtt from 'mqtt';
import t from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import { type Running, startProcess } from '../support/process.ts';
import { type Anything, adminEmail, adminPassword } from '../support/service.ts';

const rows = 2000;
const accountId = '00000000-0000-7000-8000-00000000fac7';

t.test(
  'kill -9 in the middle, twice, and a stop by signal: every serial number once, every secret works',
  async (t) => {
    const directory = temporaryDirectory(t);
    t.teardown(forget);
    const env = { SLIPWAY_ACCOUNT_ID: accountId };
    let server = await startProcess(t, directory, env);
    let token = await login(server);
    const csv = ['serialNumber', ...Array.from({ length: rows }, (_, at) => `K-${at}`)].join('\n');
    const post = () => call(server, token, 'POST', '/provisioning/jobs', csv);

    // While its rows come in.
    const halfway = post().catch(() => undefined);
    await stored(directory, 'select count(*) from "jobRows"', 1);
    await stop(server, 'SIGKILL');
    await halfway;
    server = await startProcess(t, directory, env);
    token = await login(server);
    const listed = await call(server, token, 'GET', `/provisioning/jobs?accountId=${accountId}`);
    t.ok(listed.jobs.meta.count === 0 || listed.jobs.results[0].total === rows, 'there is no half job');
    const { job } = await post();

    const done = `(select "done" from "jobs" where "id" = '${job.id}')`;
    const drift = `select (select count(*) from "devices") - ${done}`;
    const drifts = new Set<number>();
    const look = () => void drifts.add(read(directory, drift));
    const seen: number[] = [];
    for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
      const before = seen.at(-1) ?? 0;
      await stored(directory, `select ${done}`, Math.min(before + 1, rows), look);
      await stop(server, signal);
      seen.push(read(directory, `select ${done}`));
      t.equal(read(directory, 'select count(*) from "devices"'), seen.at(-1), 'what is said to be done is there');
      t.equal(read(directory, 'select count(*) from "credentials"'), seen.at(-1));
      t.equal(read(directory, 'select count(*) from "associationCodes"'), seen.at(-1));
      forget();
      server = await startProcess(t, directory, env);
      token = await login(server);
    }
    t.ok((seen[0] ?? rows) < rows, `it was in the middle: ${seen}`);
    t.equal((await post()).job.id, job.id, 'sent again it is the same job');
    await stored(directory, `select ${done}`, rows, look);
    t.strictSame([...drifts], [0], 'at no moment is there a device of which its job knows nothing');
    await ended(server, token, job.id);
    const { job: finished } = await call(server, token, 'GET', `/provisioning/jobs/${job.id}`);
    t.match(finished, { state: 'succeeded', total: rows, done: rows, failed: 0, skipped: 0 });

    const { results } = await call(server, token, 'GET', `/provisioning/jobs/${job.id}/results?format=json`);
    t.equal(new Set(results.map(({ serialNumber }: { serialNumber: string }) => serialNumber)).size, rows);
    t.equal(new Set(results.map(({ deviceId }: { deviceId: string }) => deviceId)).size, rows);
    t.equal(read(directory, 'select count(*) from "devices"'), rows);
    t.equal(read(directory, 'select count(distinct "serialNumber") from "devices"'), rows);
    for (let at = 0; at < rows; at += 100) {
      const { deviceId: username, secret: password, broker } = results[at] as (typeof results)[number];
      const client = await mqtt.connectAsync(broker, { username, password, reconnectPeriod: 0 });
      client.end(true);
    }

    // A bulk job goes on too.
    const filter = { action: 'delete', filter: { serialNumber: 'K-' } };
    const bulk = await call(server, token, 'POST', '/devices/jobs', filter);
    await stored(directory, `select "done" from "jobs" where "id" = '${bulk.job.id}'`, 1);
    await stop(server, 'SIGKILL');
    server = await startProcess(t, directory, env);
    token = await login(server);
    await ended(server, token, bulk.job.id);
    t.match((await call(server, token, 'GET', `/provisioning/jobs/${bulk.job.id}`)).job, { done: rows, failed: 0 });
    await stop(server, 'SIGTERM');
  },
);

t.test('kill -9 while a command goes to many devices: each gets its one, and none is lost', async (t) => {
  const directory = temporaryDirectory(t);
  t.teardown(forget);
  const env = { SLIPWAY_ACCOUNT_ID: accountId };
  const count = 120;
  const heard = new Map<string, Set<string>>();
  let server = await startProcess(t, directory, env);
  let token = await login(server);
  const restart = async () => {
    await stop(server, 'SIGKILL');
    const [commands, rows] = [read(directory, made), read(directory, told)];
    t.equal(rows, commands, 'each command has its row');
    forget();
    server = await startProcess(t, directory, env);
    token = await login(server);
  };
  const play = async (some: Unit[]) => {
    for (const { deviceId: username, secret: password } of some) {
      const how = { username, password, reconnectPeriod: 0 };
      const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${server.mqttPort}`, how);
      t.teardown(() => client.end(true));
      client.on('error', () => {});
      client.on('message', (topic, payload) => {
        const { id } = JSON.parse(payload.toString());
        heard.set(username, (heard.get(username) ?? new Set()).add(id));
        client.publish(`${topic}/replies`, JSON.stringify({ id, status: 'succeeded' }), { qos: 1 });
      });
      await client.subscribeAsync(`slipway/v1/${accountId}/d/${username}/_commands`, { qos: 1 });
    }
  };

  const csv = ['serialNumber', ...Array.from({ length: count }, (_, at) => `C-${at}`)].join('\n');
  const { job: line } = await call(server, token, 'POST', '/provisioning/jobs', csv);
  await ended(server, token, line.id);
  const { results } = await call(server, token, 'GET', `/provisioning/jobs/${line.id}/results?format=json`);
  const units = results as unknown as Unit[];

  const body = { accountId, filter: { serialNumber: 'C-' }, command: { name: 'blink' }, atOnce: 40 };
  const { job } = await call(server, token, 'POST', '/commands/bulk', body);
  const made = `select count(*) from "commands"`;
  const told = `select count(*) from "jobRows" where "commandId" is not null`;
  const done = `select "done" from "jobs" where "id" = '${job.id}'`;
  await stored(directory, made, 1);
  await restart();
  await stored(directory, made, 40);
  t.equal(read(directory, made), 40, 'no more are open than may be');
  await play(units.slice(0, 80));
  await stored(directory, done, 5);
  await restart();
  await play(units);
  await ended(server, token, job.id);
  const { job: finished } = await call(server, token, 'GET', `/provisioning/jobs/${job.id}`);
  t.match(finished, { state: 'succeeded', total: count, done: count, failed: 0, skipped: 0 });
  t.equal(read(directory, made), count);
  t.equal(heard.size, count);
  t.ok(
    [...heard.values()].every((ids) => ids.size === 1),
    'no device has had two',
  );
  await stop(server, 'SIGTERM');
});

interface Unit {
  deviceId: string;
  secret: string;
}

async function login(server: Running): Promise<string> {
  const body = { accountId, emailAddress: adminEmail, password: adminPassword };
  return (await call(server, undefined, 'POST', '/auth/login-user', body)).jwt;
}

async function call(server: Running, token: string | undefined, method: string, path: string, body?: string | object) {
  const type = typeof body === 'string' ? 'text/csv' : 'application/json';
  const response = await fetch(`${server.url}/api/v1${path}`, {
    method,
    headers: { ...(token && { authorization: `Bearer ${token}` }), ...(body && { 'content-type': type }) },
    ...(body && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`);
  return (await response.json()) as Anything & {
    results: Record<'serialNumber' | 'deviceId' | 'secret' | 'broker', string>[];
  };
}

/** The events of a job end with it. */
async function ended(server: Running, token: string, id: string): Promise<void> {
  const headers = { authorization: `Bearer ${token}` };
  await (await fetch(`${server.url}/api/v1/provisioning/jobs/${id}/events`, { headers })).text();
}

/** Open while the server runs: to open the file for each look costs more than all the rest. */
let file: Sqlite.Database | undefined;
const queries = new Map<string, Sqlite.Statement>();

function forget(): void {
  file?.close();
  file = undefined;
  queries.clear();
}

/** The server closes the file as it does without a reader. */
function stop(server: Running, signal: NodeJS.Signals): Promise<unknown> {
  forget();
  return server.stop(signal);
}

/** One number of registry.db as it is on the disk. */
function read(directory: string, query: string): number {
  file ??= new Sqlite(`${directory}/registry.db`, { readonly: true });
  const statement = queries.get(query) ?? file.prepare(query).pluck();
  queries.set(query, statement);
  return Number(statement.get() ?? 0);
}

/** Waits until a number on the disk has come so far; looks on meanwhile. Another process writes it, and sends no event. */
async function stored(directory: string, query: string, least: number, look = () => {}): Promise<void> {
  while (read(directory, query) < least) {
    look();
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
