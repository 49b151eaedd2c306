/** A mixed load for a long time: memory, descriptors and write-ahead logs must be flat once they are warm. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Api } from '../crash/api.ts';
import { type Launched, launch } from '../support/process.ts';
import { adminEmail, adminPassword } from '../support/service.ts';
import { copyKeys } from '../support/template.ts';
import { judge, type Verdict } from './flat.ts';
import { startLoad } from './load.ts';
import type { Inside } from './probe.ts';

const probe = fileURLToPath(new URL('./probe.ts', import.meta.url));
const mebibyte = 1024 ** 2;
/** The share of the time after which caches, pools and the cap of messages are full. */
const warmUp = 0.4;
/** A small store, so that its oldest messages go all the time. */
const messagesMaxBytes = 4 * mebibyte;

export interface Settings {
  directory: string;
  seconds: number;
  /** Seconds between two samples. */
  every: number;
  say(line: string): void;
}

export interface Soaked {
  verdicts: Array<Verdict & { name: string }>;
  done: Map<string, number>;
  failures: string[];
}

/** What a write-ahead log grows to before its pages are used again (docs/operations.md); under little load that takes longer than the warm-up. */
const walSize = 48 * mebibyte;

/** Milliseconds after which the run ends though some kind of load has done nothing. */
const patience = 60_000;

interface Sample {
  at: number;
  figures: Record<keyof typeof columns, number>;
}

/** What is sampled: how it is printed, and by how much it may rise in any case; a figure without a floor is shown only. */
const columns = {
  rss: { name: 'RSS MB', unit: mebibyte, floor: 24 * mebibyte },
  heap: { name: 'heap MB', unit: mebibyte, floor: 6 * mebibyte },
  external: { name: 'external MB', unit: mebibyte, floor: 6 * mebibyte },
  descriptors: { name: 'descriptors', unit: 1, floor: 12 },
  registryWal: { name: 'registry-wal MB', unit: mebibyte, floor: walSize },
  messagesWal: { name: 'messages-wal MB', unit: mebibyte, floor: walSize },
  registry: { name: 'registry MB', unit: mebibyte, floor: undefined },
  messages: { name: 'messages MB', unit: mebibyte, floor: undefined },
  lag: { name: 'lag p99 ms', unit: 1, floor: undefined },
  longest: { name: 'lag max ms', unit: 1, floor: undefined },
} as const;
const names = Object.keys(columns) as Array<keyof typeof columns>;

/** Runs the load and the sampling. @throws Error when the service does not start, or ends. */
export async function soak({ directory, seconds, every, say }: Settings): Promise<Soaked> {
  copyKeys(directory);
  const api = new Api(randomUUID(), { email: adminEmail, password: adminPassword });
  const env = { SLIPWAY_ACCOUNT_ID: api.accountId, SLIPWAY_MESSAGES_MAX_BYTES: String(messagesMaxBytes) };
  const launched = launch(directory, env, probe);
  try {
    const running = await launched.listening;
    api.url = running.url;
    await api.login();
    let began = Number.POSITIVE_INFINITY;
    // A busy machine gets more time until each kind of load has done something.
    const isOver = () => {
      const spent = performance.now() - began - seconds * 1000;
      return spent > 0 && (spent > patience || [...load.done.values()].every((count) => count > 0));
    };
    const load = await startLoad(api, running.mqttPort, isOver);
    began = performance.now();
    const samples: Sample[] = [];
    say(line('s', (key) => columns[key].name));
    while (!isOver()) {
      await sleep(every * 1000);
      const at = (performance.now() - began) / 1000;
      const figures = { ...(await inside(launched)), ...outside(launched, directory) };
      samples.push({ at, figures });
      say(line(String(Math.round(at)), (key) => (figures[key] / columns[key].unit).toFixed(1)));
    }
    await load.ended;
    const code = await running.stop('SIGTERM');
    if (code !== 0) load.failures.push(`SIGTERM ended it with ${code}`);
    // At the level `warn`, which the service has here, each line says of something that should not be.
    load.failures.push(
      ...running
        .output()
        .split('\n')
        .filter((one) => one.startsWith('{')),
    );
    const warm = samples.filter(({ at }) => at > warmUp * seconds);
    const verdicts = names.flatMap((key) => {
      const { name, floor, unit } = columns[key];
      if (floor === undefined) return [];
      const { median, rise, isFlat } = judge(
        warm.map(({ at, figures }) => ({ at, value: figures[key] })),
        floor,
      );
      return [{ name, median: median / unit, rise: rise / unit, isFlat }];
    });
    return { verdicts, done: load.done, failures: load.failures };
  } finally {
    launched.child.kill('SIGKILL');
  }
}

function line(first: string, of: (key: keyof typeof columns) => string): string {
  return first.padStart(6) + names.map((key) => of(key).padStart(columns[key].name.length + 2)).join('');
}

async function inside({ child, ended }: Launched): Promise<Inside> {
  const answer = once(child, 'message');
  child.send({});
  const gone = ended.then((by) => Promise.reject(new Error(`the process ended with ${by}`)));
  return (await Promise.race([answer, gone]))[0];
}

function outside({ child: { pid } }: Launched, directory: string) {
  const [, kilobytes] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  const bytes = (name: string) => statSync(join(directory, name)).size;
  return {
    rss: Number(kilobytes) * 1024,
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    registryWal: bytes('registry.db-wal'),
    messagesWal: bytes('messages.db-wal'),
    registry: bytes('registry.db'),
    messages: bytes('messages.db'),
  };
}
