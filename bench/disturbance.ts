/** What an honest customer feels while another account, or a stranger, does its worst; and what memory that takes. */
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn } from './api.ts';
import { attack, attacks } from './attacker.ts';
import { at, type Row } from './figures.ts';
import type { ServingService } from './processes.ts';
import { prepareRivals, type Rivals } from './rivals.ts';
import type { Bench } from './sizes.ts';
import { loginUse, lost, type Seen, startWatching } from './watcher.ts';

/** Milliseconds, p99, of every use of the victim; megabytes of the process. */
const figure = 100;
const memoryFigure = 400;
/** How many times as long as alone a login may take. */
const timesAlone = 5;
/** Milliseconds of warming up, and of looking on before the attack and while it goes on, in parts of `Size.duration`. */
const parts = { warm: 0.3, alone: 0.6, attacked: 1.2 };

export async function measureDisturbance({ size, directory, serve, only }: Bench): Promise<Row[]> {
  const seeded = await directory(1000);
  const rivals = await prepareRivals(seeded);
  const rows: Row[] = [];
  const names = Object.keys(attacks).filter((name) => only.length === 0 || only.includes(name));
  for (const name of names) {
    const { shows, env, victimLogsIn } = attacks[name] ?? { shows: '' };
    console.log(`\n${name}: ${shows}`);
    const copy = mkdtempSync(join(tmpdir(), 'slipway-bench-disturbance-'));
    try {
      cpSync(seeded, copy, { recursive: true });
      const service = await serve(copy, env);
      const login = victimLogsIn && rivals.victim.admin;
      rows.push(...rowsOf(shows, await measure(name, rivals, { ...service, directory: copy }, size.duration, login)));
    } catch (error) {
      // The other attacks are measured all the same.
      console.error(error);
      rows.push({
        what: `Others during ${shows}: failed`,
        ours: Number.NaN,
        unit: 'ms',
        figure: { below: 0 },
      });
    } finally {
      rmSync(copy, { recursive: true, force: true });
    }
  }
  return rows;
}

interface Measured {
  alone: Seen;
  attacked: Seen;
  /** Megabytes at the highest, and after the attack. */
  peak: number;
}

async function measure(
  name: string,
  { victim, attacker }: Rivals,
  service: ServingService & { directory: string },
  duration: number,
  admin: Rivals['victim']['admin'] | undefined,
): Promise<Measured> {
  const ports = { httpPort: Number(new URL(service.url).port), mqttPort: service.mqttPort };
  const [mine, theirs] = [
    await logIn(service, victim.accountId, victim.admin),
    await logIn(service, attacker.accountId, attacker.admin),
  ];
  const plain = (devices: Rivals['victim']['devices']) => devices.map(({ id, secret, root }) => ({ id, secret, root }));
  const { accountId } = victim;
  const login = admin && { emailAddress: admin.email, password: admin.password };
  const watcher = startWatching({ ...ports, accountId, token: mine.token, devices: plain(victim.devices), login });
  try {
    await sleep(duration * parts.warm);
    await watcher.take();
    await sleep(duration * parts.alone);
    const alone = await watcher.take();
    const { series, deviceTemplateId, organizationId } = attacker;
    const { stop } = await attack(name, {
      ...ports,
      ...{ series, deviceTemplateId, organizationId },
      directory: service.directory,
      accountId: attacker.accountId,
      admin: attacker.admin,
      token: theirs.token,
      devices: plain(attacker.devices),
    });
    // What it takes to put all in place is no attack.
    await watcher.take();
    const cpuBefore = service.cpu();
    await sleep(duration * parts.attacked);
    const attacked = await watcher.take();
    const cpu = ((service.cpu() - cpuBefore) / duration / parts.attacked) * 1000;
    const peak = service.peak();
    await stop();
    for (const kind of Object.keys(alone)) {
      const column = (seen: Seen, share: number) =>
        at(seen[kind] ?? [], share)
          .toFixed(1)
          .padStart(8);
      const refused = (attacked[kind] ?? []).filter((time) => time === lost).length;
      console.log(
        `  ${kind.padEnd(18)} p99 alone ${column(alone, 0.99)}   attacked: p50 ${column(attacked, 0.5)}  p99 ${column(attacked, 0.99)}  most ${column(attacked, 1)} ms` +
          `  (${attacked[kind]?.length ?? 0})${refused > 0 ? `  ${refused} FAILED` : ''}`,
      );
    }
    console.log(`  memory at its highest ${peak} MB; ${cpu.toFixed(2)} cores`);
    return { alone, attacked, peak };
  } finally {
    // Also of an attack that has failed: they would disturb the next one.
    await watcher.stop();
    await service.stop();
  }
}

/** The use of the victim that suffered most, with the same use alone; and the memory. */
function rowsOf(shows: string, { alone, attacked, peak }: Measured): Row[] {
  const p99 = (seen: Seen, kind: string) => at(seen[kind] ?? [], 0.99);
  const kinds = Object.keys(attacked).filter((kind) => kind !== loginUse);
  const [slowest = ''] = kinds.sort((a, b) => p99(attacked, b) - p99(attacked, a));
  const loginAlone = p99(alone, loginUse);
  const login: Row = {
    what: `${loginUse}, p99, during ${shows}`,
    ours: p99(attacked, loginUse),
    unit: 'ms',
    peer: { name: 'alone', value: loginAlone },
    figure: { below: Math.max(figure, timesAlone * loginAlone) },
  };
  return [
    ...(loginUse in attacked ? [login] : []),
    {
      what: `${slowest} of another account, p99, during ${shows}`,
      ours: p99(attacked, slowest),
      unit: 'ms',
      peer: { name: 'alone', value: p99(alone, slowest) },
      figure: { below: figure },
    },
    { what: 'Memory at its highest meanwhile', ours: peak, unit: 'MB', figure: { below: memoryFigure } },
  ];
}
