/** The service that the tests of this process share. */
import root, { type Test } from 'tap';
import { type Service, startService } from './service.ts';

let shared: Promise<Service> | undefined;

/**
 * The shared service, in a new account. It ends with the process; with the test its clients end, and its log is checked. A test
 * of start, settings, a limit of the process, a clock or the end of a service starts one of its own with `startService`.
 */
export async function sharedService(t: Test): Promise<Service> {
  shared ??= startService(root);
  const service = await shared;
  const own = await service.inNewAccount();
  t.teardown(async () => {
    await own.close();
    service.secrets.check();
  });
  return own;
}
