/** `slipway account create|list`: accounts are made on the machine of the service, never over HTTP. */
import { loadConfig } from '../config.js';
import { Passwords } from '../identity/secrets/passwords.js';
import { createAccount } from '../registry/accounts.js';
import { type OnDirectory, print, withNewRegistry, withRegistry } from './data/files.js';

interface NewAccount extends OnDirectory {
  name: string;
  adminEmail: string;
  adminPassword: string | undefined;
}

export async function accountCreate(given: NewAccount): Promise<void> {
  const { name, adminEmail, adminPassword } = given;
  await withNewRegistry(given, async ({ registry, clock }) => {
    const services = { registry, clock, passwords: new Passwords(), config: loadConfig() };
    print(await createAccount(services, { name, adminEmail, adminPassword }));
  });
}

export async function accountList(given: OnDirectory): Promise<void> {
  await withRegistry(given, async ({ registry }) => {
    const accounts = await registry.query.selectFrom('accounts').selectAll().orderBy('created').execute();
    for (const { id, name, created } of accounts) print({ accountId: id, name, created });
  });
}
