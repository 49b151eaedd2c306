/** `slipway cells check`: whether `cells.yaml` fits the cells. */

import { type Cell, type CellsConfig, cellOfAccount, readCellsFile } from '../../cells/config.ts';
import { ownUuid } from '../../cells/haproxy/cfg.ts';
import { loadConfig } from '../../src/core/config.ts';
import { slotOf, slotsText } from '../../src/core/ids.ts';
import { Ending, exitCodes, UsageError } from '../usage.ts';
import { type CellContent, readCell, readDirectory } from './asking.ts';

export interface CheckFlags {
  config: string;
  /** `c01=/var/lib/slipway`: the data directory of a cell that is not asked. */
  dataDir: readonly string[];
  /** Only the file is checked. */
  offline: boolean;
  json: boolean;
}

/** What is wrong, and what has to be added to `cells.yaml`. */
export interface Findings {
  problems: string[];
  notes: string[];
  /** Ids that `accounts` does not list yet and HAProxy would not ask the cells for, by account. */
  missing: Map<string, string[]>;
}

/** Prints what was found. @throws UsageError for a wrong file, Ending with 1 when something must be corrected. */
export async function cellsCheck({ config: path, dataDir, offline, json }: CheckFlags): Promise<void> {
  const config = readCellsFile(path);
  const directories = directoriesOf(config, dataDir);
  const findings = await checkCells(config, async (cell) => {
    const directory = directories.get(cell.name);
    if (directory !== undefined) return readDirectory(directory);
    return offline ? undefined : readCell(cell, loadConfig().metricsToken);
  });
  printFindings(config, findings, json);
}

/** Compares the file with what `read` finds in each cell; a cell of which it finds nothing is left out. */
export async function checkCells(
  config: CellsConfig,
  read: (cell: Cell) => Promise<CellContent | undefined>,
): Promise<Findings> {
  const findings: Findings = { problems: [], notes: [], missing: new Map() };
  const versions = new Set<string>();
  const contents = await Promise.allSettled([...config.cells.values()].map(read));
  for (const [place, cell] of [...config.cells.values()].entries()) {
    const content = contents[place];
    if (content?.status === 'rejected')
      findings.problems.push(`${cell.name} (${cell.address}:${cell.http}): ${content.reason.message}.`);
    else if (content?.value) {
      compare(config, cell, content.value, findings);
      versions.add(content.value.version);
    }
  }
  if (versions.size > 1) findings.notes.push(`The cells have different versions: ${[...versions].join(', ')}.`);
  return findings;
}

function directoriesOf(config: CellsConfig, given: readonly string[]): Map<string, string> {
  return new Map(
    given.map((one) => {
      const [, name = '', directory = ''] = /^([^=]+)=(.+)$/.exec(one) ?? [];
      if (!config.cells.has(name))
        throw new UsageError(`--data-dir ${one}: expected CELL=DIR with a cell of the file.`);
      return [name, directory];
    }),
  );
}

/** Adds what does not fit between a cell and the file. */
function compare(config: CellsConfig, cell: Cell, content: CellContent, { problems, notes, missing }: Findings): void {
  const { accountIds, foreign, slots, version } = content;
  const known = slots === undefined ? '' : `version ${version}, `;
  notes.push(`${cell.name}: ${known}accounts: ${accountIds.length}, slots: ${cell.slots.length}.`);
  const own = slotsText(cell.slots);
  if (slots !== undefined && slots !== own)
    problems.push(
      `${cell.name}: SLIPWAY_SLOTS is ${slots}, but cells.yaml says ${own}. New accounts would get wrong slots.`,
    );
  for (const accountId of accountIds) {
    const right = cellOfAccount(config, accountId);
    if (right !== cell.name)
      problems.push(
        `${cell.name} has the account ${accountId}, but its slot ${slotOf(accountId)} belongs to ${right}.`,
      );
  }
  let askedFor = 0;
  for (const [accountId, ids] of foreign) {
    const listed = new Set(config.accounts.get(accountId)?.map((id) => id.toLowerCase()));
    const unlisted = ids.filter((id) => !listed.has(id.toLowerCase()));
    const believed = unlisted.filter((id) => !isLookedUp(config, id));
    askedFor += unlisted.length - believed.length;
    if (believed.length > 0) missing.set(accountId, believed);
  }
  if (askedFor > 0) notes.push(`${cell.name}: ids without digits that HAProxy asks the cells for: ${askedFor}.`);
}

/** Whether HAProxy asks the cells for an id that is not listed. It believes the digits of the others. */
function isLookedUp({ public: { lookup } }: CellsConfig, id: string): boolean {
  return lookup === 'all' || !ownUuid.test(id);
}

function printFindings(config: CellsConfig, { problems, notes, missing }: Findings, json: boolean): void {
  const count = [...missing.values()].reduce((sum, ids) => sum + ids.length, 0);
  if (json) process.stdout.write(`${JSON.stringify({ problems, notes, missing: Object.fromEntries(missing) })}\n`);
  else {
    for (const note of notes) process.stdout.write(`${note}\n`);
    if (count > 0) process.stdout.write(`${linesToAdd(config, missing)}\n`);
  }
  const told = count > 0 ? [`${count} ids do not carry the digits of their account and are not in cells.yaml.`] : [];
  const all = [...(json ? [] : problems), ...told];
  if (problems.length > 0 || count > 0) throw new Ending(exitCodes.failed, all.join('\n'));
  if (!json) process.stdout.write('cells.yaml fits.\n');
}

/** The part of `cells.yaml` with what it has and what it needs. */
function linesToAdd(config: CellsConfig, missing: ReadonlyMap<string, string[]>): string {
  const lines = [...missing].flatMap(([accountId, ids]) => [
    `  ${accountId}:`,
    ...[...(config.accounts.get(accountId) ?? []), ...ids].map((id) => `    - ${id}`),
  ]);
  return ['# cells.yaml needs these entries:', 'accounts:', ...lines].join('\n');
}
