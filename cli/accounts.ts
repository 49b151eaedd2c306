/** `slipway account create|list`: accounts are made on the machine of the service, never over HTTP. */
import { loadConfig } from '../src/core/config.ts';
import { readPasswordFile, readPasswordInput } from '../src/core/formats/password-file.ts';
import { Passwords } from '../src/identity/secrets/passwords.ts';
import { createAccount } from '../src/registry/accounts.ts';
import { type OnDirectory, print, withNewRegistry, withRegistry } from './data/files.ts';
import { UsageError } from './usage.ts';

interface NewAccount extends OnDirectory {
  name: string;
  adminEmail: string;
  adminPassword: string | undefined;
  adminPasswordFile: string | undefined;
}

export async function accountCreate(given: NewAccount): Promise<void> {
  const { name, adminEmail } = given;
  const adminPassword = await readPassword(given);
  await withNewRegistry(given, async ({ registry, clock }) => {
    const services = { registry, clock, passwords: new Passwords(), config: loadConfig() };
    print(await createAccount(services, { name, adminEmail, adminPassword }));
  });
}

/** Of `-`, from standard input. @throws UsageError for both, and for a file without a password. */
async function readPassword({ adminPassword, adminPasswordFile: file }: NewAccount): Promise<string | undefined> {
  if (file === undefined) return adminPassword;
  if (adminPassword !== undefined) throw new UsageError('Give one of --admin-password and --admin-password-file.');
  try {
    return file === '-' ? await readPasswordInput() : readPasswordFile(file);
  } catch (error) {
    throw new UsageError(`--admin-password-file ${(error as Error).message}`);
  }
}

export async function accountList(given: OnDirectory): Promise<void> {
  await withRegistry(given, async ({ registry }) => {
    const accounts = await registry.query.selectFrom('accounts').selectAll().orderBy('created').execute();
    for (const { id, name, created } of accounts) print({ accountId: id, name, created });
  });
}
