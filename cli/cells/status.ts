/** `slipway cells status`: each cell as it is now. */

import { type Cell, readCellsFile } from '../../cells/config.ts';
import { loadConfig } from '../../src/core/config.ts';
import { Ending, exitCodes } from '../usage.ts';
import { askCell } from './asking.ts';

export interface StatusFlags {
  config: string;
  json: boolean;
}

/** What a line says. Undefined is what could not be asked. */
interface CellStatus {
  cell: string;
  address: string;
  /** `ready`, `not ready` or `down`, and the reason. */
  health: string;
  reason?: string | undefined;
  version?: string | undefined;
  slots: number;
  accounts?: number | undefined;
  connections?: number | undefined;
  /** Messages since the start of the process, and points that are stored. */
  messages?: number | undefined;
  points?: number | undefined;
}

const columns = [
  'cell',
  'address',
  'health',
  'version',
  'slots',
  'accounts',
  'connections',
  'messages',
  'points',
] as const;

/** Prints a line for each cell. @throws Ending with 1 when a cell is not ready. */
export async function cellsStatus({ config: path, json }: StatusFlags): Promise<void> {
  const config = readCellsFile(path);
  const { metricsToken } = loadConfig();
  const cells = await Promise.all([...config.cells.values()].map((cell) => statusOf(cell, metricsToken)));
  if (json) for (const cell of cells) process.stdout.write(`${JSON.stringify(cell)}\n`);
  else process.stdout.write(`${table(cells)}\n`);
  const bad = cells.filter(({ health }) => health !== 'ready');
  if (bad.length > 0)
    throw new Ending(
      exitCodes.failed,
      bad.map(({ cell, health, reason }) => `${cell} is ${health}: ${reason}`).join('\n'),
    );
}

async function statusOf(cell: Cell, token: string | undefined): Promise<CellStatus> {
  const { name, address, http, slots } = cell;
  const known = { cell: name, address: `${address}:${http}`, slots: slots.length };
  try {
    const [ready, metrics, about] = await Promise.all([
      askCell(cell, '/health/ready', token),
      askCell(cell, '/metrics', token),
      askCell(cell, '/cell', token),
    ]);
    const health = ready.status === 200 ? { health: 'ready' } : { health: 'not ready', reason: ready.text };
    const told = metrics.status === 200 ? metrics.text : '';
    return {
      ...known,
      ...health,
      version: about.status === 200 ? (JSON.parse(about.text) as { version: string }).version : undefined,
      accounts: about.status === 200 ? await countAccounts(cell, token) : undefined,
      connections: sumOf(told, 'slipway_mqtt_connections'),
      messages: sumOf(told, 'slipway_published_messages_total'),
      points: sumOf(told, 'slipway_messages_points'),
    };
  } catch (error) {
    return { ...known, health: 'down', reason: (error as Error).message };
  }
}

async function countAccounts(cell: Cell, token: string | undefined): Promise<number> {
  let count = 0;
  for (let after: string | null = ''; after !== null; ) {
    const { text } = await askCell(cell, `/cell/accounts?after=${after}`, token);
    const page = JSON.parse(text) as { accounts: unknown[]; next: string | null };
    count += page.accounts.length;
    after = page.next;
  }
  return count;
}

/** The sum of the lines of one metric; undefined when there is none. */
function sumOf(metrics: string, name: string): number | undefined {
  const values = [...metrics.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))].map(([, value]) =>
    Number(value),
  );
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0);
}

function table(cells: readonly CellStatus[]): string {
  const rows = [[...columns], ...cells.map((cell) => columns.map((column) => `${cell[column] ?? '-'}`))];
  const widths = columns.map((_, place) => Math.max(...rows.map((row) => row[place]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((text, place) => text.padEnd(widths[place] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
