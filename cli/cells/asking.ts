/** Asks cells what `slipway cells` has to know: at their HTTP ports, or in their data directories. */

import type { Cell } from '../../cells/config.ts';
import { type CellPlace, type ForeignIds, firstPlace, readAccounts, readForeignIds } from '../../cells/routes.ts';
import { behind } from '../../db/files/schema.ts';
import { version } from '../../db/files/version.ts';
import { Registry } from '../../db/registry/index.ts';
import { demandRegistry } from '../data/files.ts';
import { askServer } from '../own-server.ts';
import { UsageError } from '../usage.ts';

/** What a cell has. */
export interface CellContent {
  version: string;
  /** SLIPWAY_SLOTS of the cell; undefined when its data directory was read. */
  slots: string | undefined;
  accountIds: string[];
  /** Ids that do not carry the digits of their account, by account. */
  foreign: Map<string, string[]>;
}

/** Ids that are gathered of one cell. More are an old fleet, which needs a text of its own and not a list on a screen. */
const maxForeign = 1_000_000;

/** One GET at the HTTP port of a cell. @throws Error when it does not answer. */
export function askCell(cell: Cell, path: string, metricsToken: string | undefined) {
  const where = { host: cell.address, httpPort: cell.http, tls: cell.tls ? {} : undefined, metricsToken };
  return askServer(where, path);
}

/** What a running cell has. @throws Error with a sentence when it does not answer, or not with what was asked for. */
export async function readCell(cell: Cell, metricsToken: string | undefined): Promise<CellContent> {
  const get = async (path: string) => {
    const { status, text } = await askCell(cell, path, metricsToken);
    if (status === 200) return JSON.parse(text);
    throw new Error(`${path} answers ${status}: ${text}. Set SLIPWAY_METRICS_TOKEN, the same in the cell and here`);
  };
  const about: { version: string; slots: string } = await get('/cell');
  const accountIds: string[] = [];
  for (let after: string | null = ''; after !== null; ) {
    const page: { accounts: { id: string }[]; next: string | null } = await get(`/cell/accounts?after=${after}`);
    accountIds.push(...page.accounts.map(({ id }) => id));
    after = page.next;
  }
  const foreign = await gather(({ kind, after }) => get(`/cell/ids?kind=${kind}&after=${encodeURIComponent(after)}`));
  return { ...about, accountIds, foreign };
}

/** The same of a data directory, whether a server runs there or not. @throws UsageError without a registry of this version */
export async function readDirectory(directory: string): Promise<CellContent> {
  demandRegistry(directory);
  if (behind(directory).length > 0)
    throw new UsageError(`${directory} is of an older version. Start its server once, which upgrades it.`);
  const registry = await Registry.open(directory);
  try {
    const accountIds: string[] = [];
    for (let after: string | undefined = ''; after !== undefined; ) {
      const accounts: { id: string }[] = await readAccounts(registry, after);
      accountIds.push(...accounts.map(({ id }) => id));
      after = accounts.at(-1)?.id;
    }
    const foreign = await gather((place) => readForeignIds(registry, place));
    return { version, slots: undefined, accountIds, foreign };
  } finally {
    await registry.close();
  }
}

async function gather(read: (place: CellPlace) => Promise<ForeignIds>): Promise<Map<string, string[]>> {
  const foreign = new Map<string, string[]>();
  let count = 0;
  for (let place: CellPlace | null = firstPlace; place !== null; ) {
    const page: ForeignIds = await read(place);
    count += page.ids.length;
    if (count > maxForeign) throw new Error(`more than ${maxForeign} ids do not carry the digits of their account`);
    for (const { accountId, id } of page.ids) {
      const listed = foreign.get(accountId);
      if (listed) listed.push(id);
      else foreign.set(accountId, [id]);
    }
    place = page.next;
  }
  return foreign;
}
