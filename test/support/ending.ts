/** Processes that end with the one that has started them, however it ends: a test that is killed leaves none behind. */
import { spawnSync } from 'node:child_process';

/** Linux has it; elsewhere only an orderly end stops them. */
const hasSetpriv = spawnSync('setpriv', ['--version']).status === 0;

/** The command to spawn. It becomes the given one, with the same process id. */
export function endingWithUs(command: [string, ...string[]]): [string, ...string[]] {
  return hasSetpriv ? ['setpriv', '--pdeathsig', 'KILL', '--', ...command] : command;
}
