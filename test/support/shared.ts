/** The services that the tests of this process share. */
import root, { type Test } from 'tap';
import { type Service, startService } from './service.ts';

/** By their settings: one for each. */
const shared = new Map<string, Promise<Service>>();

/**
 * A shared service with these settings, in a new account. It ends with the process; with the test its clients end, and its log is
 * checked. For a start, a clock, a limit of the process or its end use `startService`.
 */
export async function sharedService(t: Test, env: Record<string, string> = {}): Promise<Service> {
  const key = JSON.stringify(env);
  const started = shared.get(key) ?? startService(root, { env });
  shared.set(key, started);
  const service = await started;
  const own = await service.inNewAccount();
  t.teardown(async () => {
    await own.close();
    service.secrets.check();
  });
  return own;
}
