/** `slipway keys rotate`: a new signing key; the old ones verify until the last token they signed is over. */
import { join } from 'node:path';
import { believedTime } from '../../src/core/trusted-clock.ts';
import { rotateKeys } from '../../src/identity/sessions/tokens.ts';
import { directoryOf, type OnDirectory, print, withRegistry } from './files.ts';

export async function keysRotate(given: OnDirectory & { endOld: boolean }): Promise<void> {
  const { endOld: oldEnded } = given;
  const time = believedTime(directoryOf(given));
  await withRegistry(given, async ({ dataDir, registry, audit }) => {
    const kid = await rotateKeys(join(dataDir, 'keys'), { now: () => time }, oldEnded);
    // The keys are those of every account.
    const accounts = await registry.query.selectFrom('accounts').select('id').execute();
    for (const { id: accountId } of accounts)
      await audit.record(registry.query, {
        event: 'keysRotated',
        outcome: 'success',
        accountId,
        details: { by: 'command line', kid, oldEnded },
      });
    print({ kid });
  });
}
