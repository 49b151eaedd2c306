/** `slipway keys rotate`: a new signing key; the old ones verify until the last token they signed is over (decisions 4). */
import { join } from 'node:path';
import { rotateKeys } from '../identity/tokens.js';
import { print, withRegistry } from './files.js';

export async function keysRotate(args: string[]): Promise<void> {
  await withRegistry(args, { 'end-old': 'boolean' }, async ({ dataDir, clock, switches }) => {
    const directory = join(dataDir, 'keys');
    const kid = await (switches.has('end-old') ? rotateKeys(directory, clock, 0) : rotateKeys(directory, clock));
    print({ kid });
  });
}
