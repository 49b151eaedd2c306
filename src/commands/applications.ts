/** `slipway app create|revoke`: applications without a login, for scripts that set a machine up. */
import { applicationKinds } from '../access.js';
import { insertApplication, revokeApplication } from '../identity/applications.js';
import { makeToken } from '../identity/secrets/secrets.js';
import { accountOf, demanded, print, UsageError, withRegistry } from './data/files.js';

/** The operator of the machine acts for nobody in particular. */
const commandLine = { by: 'command line' };

export async function appCreate(args: string[]): Promise<void> {
  const options = { account: 'string', name: 'string', kind: 'string', 'access-token-lifetime': 'string' } as const;
  const ofStations = {
    'device-template': 'string',
    organization: 'string',
    'max-devices': 'string',
    'expires-at': 'string',
  } as const;
  await withRegistry(args, { ...options, ...ofStations, 'reveal-reset-token': 'boolean' }, async (files) => {
    const { registry, clock, audit, values, switches } = files;
    const accountId = await accountOf(files);
    const kind = applicationKinds.find((one) => one === values.kind);
    if (!kind) throw new UsageError(`--kind must be one of ${applicationKinds.join(', ')}.`);
    const lifetime = values['access-token-lifetime'];
    if (lifetime !== undefined && !/^[1-9]\d{1,6}$/.test(lifetime))
      throw new UsageError('--access-token-lifetime must be a number of seconds.');
    const { 'device-template': deviceTemplateId, organization: organizationId } = values;
    const { 'max-devices': most, 'expires-at': expiresAt } = values;
    if (most !== undefined && !/^[1-9]\d{0,6}$/.test(most)) throw new UsageError('--max-devices must be a number.');
    const appToken = makeToken(accountId);
    const body = {
      name: demanded(values, 'name'),
      kind,
      accessTokenLifetime: lifetime === undefined ? null : Number(lifetime),
      revealResetToken: switches.has('reveal-reset-token'),
      ...(deviceTemplateId !== undefined && { deviceTemplateId }),
      ...(organizationId !== undefined && { organizationId }),
      ...(most !== undefined && { maxDevices: Number(most) }),
      ...(expiresAt !== undefined && { expiresAt }),
    };
    const row = await registry.transaction(async (tx) => {
      const made = await insertApplication(tx, clock, { id: 'command line', accountId }, body, appToken);
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

export async function appRevoke(args: string[]): Promise<void> {
  await withRegistry(args, { id: 'string' }, async ({ registry, clock, audit, values }) => {
    const id = demanded(values, 'id');
    await registry.transaction((tx) => revokeApplication(tx, { clock, audit }, id, undefined, commandLine));
    print({ appId: id, revoked: true });
  });
}

export async function appList(args: string[]): Promise<void> {
  await withRegistry(args, { account: 'string' }, async (files) => {
    const applications = files.registry.query
      .selectFrom('applications')
      .select(['id', 'name', 'kind', 'created', 'maxDevices', 'madeDevices', 'expiresAt'])
      .where('accountId', '=', await accountOf(files))
      .where('deleted', 'is', null);
    for (const { id, name, kind, created, ...limits } of await applications.orderBy('created').execute())
      print({ appId: id, name, kind, created, ...(kind === 'station' && limits) });
  });
}
