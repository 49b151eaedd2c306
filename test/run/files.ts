/** Which test files there are, and which of them share a process. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** The files of one process, which run one after another. */
export type Group = readonly string[];

/** Files with about what they cost, in lines. */
interface Piece {
  files: string[];
  cost: number;
}

/** What a process takes at most: most of a short file is the start of its process, and a long process ends last. */
const most = 3000;
/** A browser needs longer for a line than the others. */
const weights = new Map([['test/console', 3.5]]);
export const isSlow = (file: string) => file.startsWith('test/slow');
/** Whether a file needs a process of its own. */
export const isAlone = (file: string) => isSlow(file) || file.startsWith('test/alone/');

/**
 * Test files at these paths, in order. A folder stands for all below it; the slow ones must be named.
 * @throws Error for a path without any.
 */
export function filesAt(paths: readonly string[]): string[] {
  const files = paths.flatMap((path) => {
    const found = existsSync(path) && statSync(path).isDirectory() ? filesBelow(path) : [path].filter(existsSync);
    if (found.length === 0) throw new Error(`${path} has no test files`);
    return found;
  });
  return [...new Set(files)];
}

function filesBelow(folder: string): string[] {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.test.ts'));
  const files = names.map((name) => join(folder, name)).sort();
  return files.filter((file) => !isSlow(file) || isSlow(folder));
}

/** Files in groups that cost about as much, the costliest first: a long folder is cut, short ones share a group. */
export function groupsOf(files: readonly string[]): Group[] {
  const pieces: Piece[] = files.filter(isAlone).map((file) => ({ files: [file], cost: costOf(file) }));
  const sharing = files.filter((file) => !isAlone(file));
  const folders = [...new Set(sharing.map(dirname))].map((one) => cut(sharing.filter((file) => dirname(file) === one)));
  pieces.push(...folders.filter((parts) => parts.length > 1).flat());
  pieces.push(...joined(folders.filter((parts) => parts.length === 1).flat()));
  return pieces.sort((a, b) => b.cost - a.cost).map((piece) => piece.files);
}

function costOf(file: string): number {
  return readFileSync(file, 'utf8').split('\n').length * (weights.get(dirname(file)) ?? 1);
}

/** The files of a folder in as few pieces as are not too long. */
function cut(files: readonly string[]): Piece[] {
  const total = files.map(costOf).reduce((sum, cost) => sum + cost, 0);
  const count = Math.ceil(total / most);
  const pieces = Array.from({ length: count }, (): Piece => ({ files: [], cost: 0 }));
  let before = 0;
  for (const file of files) {
    const cost = costOf(file);
    add(pieces[Math.floor(((before + cost / 2) / total) * count)], [file], cost);
    before += cost;
  }
  return pieces.filter((piece) => piece.cost > 0);
}

function add(piece: Piece | undefined, files: string[], cost: number): void {
  piece?.files.push(...files);
  if (piece) piece.cost += cost;
}

/** Pieces put together where they are not too long together. */
function joined(pieces: readonly Piece[]): Piece[] {
  const result: Piece[] = [];
  for (const piece of [...pieces].sort((a, b) => b.cost - a.cost)) {
    const room = result.find(({ cost }) => cost + piece.cost <= most);
    if (room) add(room, piece.files, piece.cost);
    else result.push(piece);
  }
  return result;
}
