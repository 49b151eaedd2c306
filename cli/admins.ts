/** `slipway admin create|reset-password`: the way back in for the operator of the machine. */
import { insert, stamp } from '../src/entity/verbs.ts';
import { findIdentity, insertIdentity, newIdentity } from '../src/identity/identities.ts';
import { Passwords } from '../src/identity/secrets/passwords.ts';
import { endSessions } from '../src/identity/sessions/sessions.ts';
import { accountOf, type OnAccount, print, withRegistry } from './data/files.ts';
import { UsageError } from './usage.ts';

interface AdminFlags extends OnAccount {
  email: string;
  password: string | undefined;
}

export async function adminCreate(given: AdminFlags): Promise<void> {
  const { email } = given;
  await withRegistry(given, async ({ registry, clock, audit }) => {
    const accountId = await accountOf(registry, given);
    const { password, passwordHash } = await new Passwords().choose('password', given.password, email);
    const identity = newIdentity(clock, 'email', { accountId, email, passwordHash, passwordChosenBy: 'operator' });
    await registry.transaction(async (tx) => {
      await insertIdentity(tx, 'email', identity);
      const row = {
        ...stamp(clock, { id: identity.id, accountId }),
        userId: identity.id,
        roleId: null,
        identityProviderId: null,
      };
      await insert(tx, 'accountUsers', row);
      await audit.record(tx, {
        event: 'accountUserCreated',
        outcome: 'success',
        accountId,
        target: { kind: 'accountUser', id: row.id },
        details: { by: 'command line' },
      });
    });
    print({ accountId, adminEmail: email, adminPassword: password });
  });
}

/** A new password for an admin; every session of the former ends. */
export async function adminResetPassword(given: AdminFlags & { removeMfa: boolean }): Promise<void> {
  const { email, removeMfa } = given;
  await withRegistry(given, async ({ registry, clock, audit }) => {
    const accountId = await accountOf(registry, given);
    const identity = await findIdentity(registry.query, accountId, email);
    const admins = registry.query.selectFrom('accountUsers').select('id').where('deleted', 'is', null);
    if (!identity || !(await admins.where('userId', '=', identity.id).executeTakeFirst()))
      throw new UsageError(`There is no admin ${email}.`);
    const { password, passwordHash } = await new Passwords().choose('password', given.password, email);
    await registry.transaction(async (tx) => {
      const chosen = { passwordHash, passwordChosenBy: 'operator' };
      await tx.updateTable('identities').set(chosen).where('id', '=', identity.id).execute();
      await endSessions(tx, clock, identity.id);
      for (const table of ['mailedTokens', 'mfaLogins'] as const)
        await tx.deleteFrom(table).where('userId', '=', identity.id).execute();
      if (removeMfa)
        for (const table of ['mfaMethods', 'recoveryCodes'] as const)
          await tx.deleteFrom(table).where('userId', '=', identity.id).execute();
      await audit.record(tx, {
        event: 'passwordChanged',
        outcome: 'success',
        accountId,
        target: { kind: 'identity', id: identity.id },
        details: { by: 'command line', mfaRemoved: removeMfa },
      });
    });
    print({ accountId, adminEmail: identity.email, adminPassword: password });
  });
}

export async function adminList(given: OnAccount): Promise<void> {
  await withRegistry(given, async ({ registry }) => {
    const admins = registry.query
      .selectFrom('accountUsers')
      .innerJoin('identities', 'identities.id', 'accountUsers.userId')
      .select(['accountUsers.id', 'accountUsers.userId', 'identities.email', 'accountUsers.created'])
      .where('accountUsers.accountId', '=', await accountOf(registry, given))
      .where('accountUsers.deleted', 'is', null);
    for (const { id, userId, email, created } of await admins.orderBy('accountUsers.created').execute())
      print({ accountUserId: id, userId, adminEmail: email, created });
  });
}
