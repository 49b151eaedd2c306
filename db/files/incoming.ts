/**
 * Replaces files of a data directory, all of them or none, whatever ends the process: they are
 * gathered in a directory of their own, whose renaming decides, and the next holder of the lock finishes what was decided.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sync } from './copies.ts';

/** The plan: files that go, files that replace them, and the directory for the former files. */
interface Plan {
  going: readonly string[];
  coming: readonly string[];
  aside: string;
}

const decided = (directory: string) => join(directory, 'incoming');
const gathered = (directory: string) => join(directory, 'incoming.partial');
const planName = 'plan.json';
/** Of a database; without them it would take the log of another for its own. */
const companions = ['-wal', '-shm'];

/** An empty directory for what comes; one that was left by a process that has ended is emptied. */
export function gather(directory: string): string {
  const path = gathered(directory);
  rmSync(path, { recursive: true, force: true });
  mkdirSync(path, { mode: 0o700 });
  return path;
}

/** Forgets what was gathered. */
export function abandon(directory: string): void {
  rmSync(gathered(directory), { recursive: true, force: true });
}

/** Whether something was decided that has not been finished. */
export function isUnfinished(directory: string): boolean {
  return existsSync(decided(directory));
}

/**
 * Puts what lies in `source`, on disk already, instead of `going`, which is kept in a directory that is answered;
 * undefined when there was nothing. To be called by who holds the lock.
 */
export function replaceBy(
  directory: string,
  source: string,
  { going, coming, time }: { going: readonly string[]; coming: readonly string[]; time: number },
): string | undefined {
  const aside = `replaced-${nameOf(time)}`;
  const plan: Plan = { going: [...new Set([...going, ...coming])], coming, aside };
  writeFileSync(join(source, planName), JSON.stringify(plan), { mode: 0o600, flush: true });
  sync(source);
  renameSync(source, decided(directory));
  sync(directory);
  finishReplacement(directory);
  return existsSync(join(directory, aside)) ? join(directory, aside) : undefined;
}

/** Finishes what was decided, when there is anything, and forgets what was not. To be called by who holds the lock, before anything is opened. */
export function finishReplacement(directory: string): void {
  abandon(directory);
  if (!isUnfinished(directory)) return;
  const from = decided(directory);
  // The plan is there before anything is decided. Without it everything is in its place, and what ended was the removal below.
  if (existsSync(join(from, planName))) carryOut(directory, from);
  rmSync(from, { recursive: true });
  sync(directory);
}

function carryOut(directory: string, from: string): void {
  const { going, coming, aside } = JSON.parse(readFileSync(join(from, planName), 'utf8')) as Plan;
  for (const name of going) {
    const comes = coming.includes(name);
    // It is in its place already: what bears the name now is what has come.
    if (comes && !existsSync(join(from, name))) continue;
    for (const former of [...companions.map((end) => name + end), name]) setAside(directory, former, aside);
    if (comes) renameSync(join(from, name), join(directory, name));
  }
  sync(directory);
}

function setAside(directory: string, name: string, aside: string): void {
  if (!existsSync(join(directory, name))) return;
  mkdirSync(join(directory, aside), { recursive: true, mode: 0o700 });
  renameSync(join(directory, name), join(directory, aside, name));
}

/** A time as a part of a file's name, which sorts as the time does. */
export function nameOf(time: number): string {
  return new Date(time).toISOString().replaceAll(/[-:]/g, '').replace('.', '');
}
