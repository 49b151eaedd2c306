/** Commands to the running HAProxy, at its admin socket. */
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { UsageError } from '../usage.js';
import { mapFiles } from './maps.js';

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

/** Gives a slot, and ids that do not carry it, to a cell. Returns the directory from which HAProxy has read its maps. */
export async function switchMaps(
  socketPath: string,
  { slot, ids, cell }: { slot: string; ids: readonly string[]; cell: string },
): Promise<string> {
  const maps = await askHaproxy(socketPath, 'show map');
  const pathOf = (name: string) => {
    const [, path] = new RegExp(`\\((\\S*/${name.replace('.', '\\.')})\\)`).exec(maps) ?? [];
    if (path === undefined)
      throw new UsageError(`HAProxy has no map ${name}. Write its files with slipway cells write.`);
    return path;
  };
  const slots = pathOf(mapFiles.slots);
  const set = async (path: string, key: string) => {
    const answer = await askHaproxy(socketPath, `set map ${path} ${key} ${cell}`);
    if (answer !== '') throw new UsageError(`HAProxy does not set ${key} of ${path}: ${answer}`);
  };
  await set(slots, slot);
  for (const id of ids) await set(pathOf(mapFiles.ids), id.toLowerCase());
  return dirname(slots);
}
