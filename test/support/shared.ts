/** The services that the tests of this process share. */
import root, { type Test } from 'tap';
import { type Service, startService } from './service.ts';

/** By their settings: one for each. */
const shared = new Map<string, Promise<Service>>();

/**
 * A shared service, in a new account: the one with these settings. It ends with the process; with the test its clients end, and
 * its log is checked. A test of start, a limit of the process, a clock or the end of a service starts one of its own with
 * `startService`.
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
