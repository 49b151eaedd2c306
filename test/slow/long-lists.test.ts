/**
 * Every list at the limits: each is filled with the largest rows, and read by several at once with pageSize=1000. Meanwhile
 * another account is served, and the process stays small.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, get } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import type { Felt } from '../support/loop-probe.ts';
import { documentOf } from '../support/openapi.ts';
import { launch } from '../support/process.ts';
import { present, startService } from '../support/service.ts';
import { Filler } from './long-list-fills.ts';

const readers = 3;
/** Milliseconds between two requests of the other account. */
const pause = 5;
/** Milliseconds for which the event loop may be held, and megabytes that the process may take beyond those of its start. */
const maxHeld = 100;
const maxMemory = 230;

interface Victim {
  accountId: string;
  admin: string;
}

interface List {
  path: string;
  url: string;
  bytes: number;
}

/** Fills every list of the document that has pages. */
async function fillAll(directory: string): Promise<{ lists: List[]; admin: string; victim: Victim }> {
  const service = await startService(t, { directory });
  const filler = new Filler(service);
  const lists: List[] = [];
  for (const [path, { get: operation }] of Object.entries(documentOf(service).paths)) {
    const isList = operation?.parameters?.some(({ name }) => name === 'pageSize');
    if (isList) lists.push({ path, ...(await filler.fill(path)) });
  }
  // A rollup has no pages: all of it is one answer.
  const series = present(lists.find(({ path }) => path === '/api/v4/data/{topic}'));
  const range = 'startDateTime=1970-01-01T00:00:00Z&endDateTime=1970-01-01T05:30:00Z&rollup=1s&fill=null';
  for (const groupType of [0, 1, 2]) {
    const url = series.url.replace(/\?.*/, `?${range}&groupType=${groupType}`);
    lists.push({ path: `a rollup of 19,800 buckets, groupType ${groupType}`, url, bytes: 19_800 * 35 });
  }
  const victim = await service.account();
  const { admin } = service;
  filler.close();
  await service.close();
  return { lists, admin, victim };
}

/** Reads an answer to its end, and keeps nothing of it: its status and its bytes. */
function read(url: string, token: string, agent: Agent): Promise<{ status: number; bytes: number }> {
  return new Promise((resolve, reject) => {
    const asked = get(url, { agent, headers: { authorization: `Bearer ${token}` } }, (answer) => {
      let bytes = 0;
      answer.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
      });
      answer.on('error', reject);
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, bytes }));
    });
    asked.on('error', reject);
  });
}

/** The most memory that a process has held, in megabytes. */
function peakOf(pid: number): number {
  const [, kilobytes] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kilobytes) / 1024;
}

t.test('no list at its limits holds the event loop or takes much memory', async (t) => {
  const directory = temporaryDirectory(t);
  const { lists, admin, victim } = await fillAll(directory);
  const { child, listening } = launch(
    directory,
    // As the image and the unit of systemd set it.
    { MALLOC_ARENA_MAX: '1' },
    fileURLToPath(new URL('../support/loop-probe.ts', import.meta.url)),
  );
  t.teardown(() => child.kill('SIGKILL'));
  const { url: base } = await listening;
  const before = peakOf(child.pid ?? 0);
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  const held = async () => {
    child.send('held');
    const [felt] = (await once(child, 'message')) as [Felt];
    return felt.held;
  };
  await held();

  for (const { path, url, bytes } of lists) {
    const pageSize = path.endsWith('/dead-letters') ? 100 : 1000;
    const whole = `${base}${url}&pageSize=${pageSize}`;
    let isOver = false;
    let served = 0;
    const others = (async () => {
      do {
        const { status } = await read(`${base}/api/v1/devices?accountId=${victim.accountId}`, victim.admin, agent);
        if (status === 200) served += 1;
        await sleep(pause);
      } while (!isOver);
    })();
    const deaf = get(whole, { headers: { authorization: `Bearer ${admin}` } }).on('error', () => {});
    const answers = await Promise.all(Array.from({ length: readers }, () => read(whole, admin, agent)));
    isOver = true;
    await others;
    deaf.destroy();
    t.match(answers, Array(readers).fill({ status: 200 }), path);
    t.ok(
      answers.every((answer) => answer.bytes >= bytes),
      `${path}: ${answers[0]?.bytes} bytes of ${bytes}`,
    );
    t.ok(served > 0, `${path}: another account is served`);
    const longest = await held();
    t.ok(longest < maxHeld, `${path}: the event loop was held for ${Math.round(longest)} ms`);
  }
  const taken = peakOf(child.pid ?? 0) - before;
  t.ok(taken < maxMemory, `${Math.round(taken)} MB more than the ${Math.round(before)} MB of its start`);
});
