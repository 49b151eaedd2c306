/** Commands to the running HAProxy, at its admin socket. */
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { UsageError } from '../../src/core/usage-error.ts';
import { mapFiles } from './maps.ts';

/** Milliseconds that an answer may take. */
const patience = 5000;

/** @throws UsageError when nothing answers at the socket. */
export async function askHaproxy(socketPath: string, command: string): Promise<string> {
  const socket = connect(socketPath);
  socket.setTimeout(patience, () => socket.destroy(new Error('it does not answer')));
  socket.end(`${command}\n`);
  let answer = '';
  try {
    for await (const chunk of socket) answer += chunk;
  } catch (error) {
    throw new UsageError(`HAProxy cannot be asked at ${socketPath}: ${(error as Error).message}.`);
  }
  return answer.trim();
}

/** Gives a slot to a cell, and with it all ids of its accounts. Returns the directory from which HAProxy has read its maps. */
export async function switchMaps(socketPath: string, slot: string, cell: string): Promise<string> {
  const maps = await askHaproxy(socketPath, 'show map');
  const [, path] = new RegExp(`\\((\\S*/${mapFiles.slots.replace('.', '\\.')})\\)`).exec(maps) ?? [];
  if (path === undefined)
    throw new UsageError(`HAProxy has no map ${mapFiles.slots}. Write its files with slipway cells write.`);
  const answer = await askHaproxy(socketPath, `set map ${path} ${slot} ${cell}`);
  if (answer !== '') throw new UsageError(`HAProxy does not set ${slot} of ${path}: ${answer}`);
  return dirname(path);
}
