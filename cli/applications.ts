/** `slipway app create|revoke`: applications without a login, for scripts that set a machine up. */
import type { applicationKinds } from '../db/registry/records/identity.ts';
import { insertApplication, revokeApplication } from '../src/identity/applications.ts';
import { makeToken } from '../src/identity/secrets/secrets.ts';
import { accountOf, type OnAccount, type OnDirectory, print, withRegistry } from './data/files.ts';
import { UsageError } from './usage.ts';

/** The operator of the machine acts for nobody in particular. */
const commandLine = { by: 'command line' };

interface NewApplication extends OnAccount {
  name: string;
  kind: (typeof applicationKinds)[number];
  accessTokenLifetime: string | undefined;
  revealResetToken: boolean;
  deviceTemplate: string | undefined;
  organization: string | undefined;
  maxDevices: string | undefined;
  expiresAt: string | undefined;
}

export async function appCreate(given: NewApplication): Promise<void> {
  const { name, kind, accessTokenLifetime: lifetime, revealResetToken, maxDevices, expiresAt } = given;
  const { deviceTemplate: deviceTemplateId, organization: organizationId } = given;
  if (lifetime !== undefined && !/^[1-9]\d{1,6}$/.test(lifetime))
    throw new UsageError('--access-token-lifetime must be a number of seconds.');
  if (maxDevices !== undefined && !/^[1-9]\d{0,6}$/.test(maxDevices))
    throw new UsageError('--max-devices must be a number.');
  await withRegistry(given, async ({ registry, clock, audit }) => {
    const accountId = await accountOf(registry, given);
    const appToken = makeToken(accountId);
    const body = {
      name,
      kind,
      accessTokenLifetime: lifetime === undefined ? null : Number(lifetime),
      revealResetToken,
      ...(deviceTemplateId !== undefined && { deviceTemplateId }),
      ...(organizationId !== undefined && { organizationId }),
      ...(maxDevices !== undefined && { maxDevices: Number(maxDevices) }),
      ...(expiresAt !== undefined && { expiresAt }),
    };
    const row = await registry.transaction(async (tx) => {
      const made = await insertApplication(
        tx,
        clock,
        { id: 'command line', accountId },
        { ...body, roleId: null },
        appToken,
      );
      await audit.record(tx, {
        event: 'applicationCreated',
        outcome: 'success',
        accountId,
        target: { kind: 'application', id: made.id },
        details: { kind, ...commandLine },
      });
      return made;
    });
    print({ accountId, appId: row.id, appToken });
  });
}

export async function appRevoke(given: OnDirectory & { id: string }): Promise<void> {
  const { id } = given;
  await withRegistry(given, async ({ registry, clock, audit }) => {
    await registry.transaction((tx) => revokeApplication(tx, { clock, audit }, id, undefined, commandLine));
    print({ appId: id, revoked: true });
  });
}

export async function appList(given: OnAccount): Promise<void> {
  await withRegistry(given, async ({ registry }) => {
    const applications = registry.query
      .selectFrom('applications')
      .select(['id', 'name', 'kind', 'created', 'maxDevices', 'madeDevices', 'expiresAt'])
      .where('accountId', '=', await accountOf(registry, given))
      .where('deleted', 'is', null);
    for (const { id, name, kind, created, ...limits } of await applications.orderBy('created').execute())
      print({ appId: id, name, kind, created, ...(kind === 'station' && limits) });
  });
}
