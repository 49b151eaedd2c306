/** What a product lets its customers tell a device. */
import { api, unwrap } from '../app/api.ts';
import { can } from '../app/session.ts';
import { commandVerbs } from '../device/declared.tsx';
import type { Verb } from '../parts/verbs.tsx';
import type { Mine } from './read.ts';
import { words } from './words.ts';

export function commandsOf({ id, deviceTemplate }: Mine): Verb[] {
  if (!can('create', 'command')) return [];
  const declared = deviceTemplate?.commands.filter(({ forCustomers }) => forCustomers) ?? [];
  const params = { path: { id } };
  return commandVerbs(
    declared,
    (body) => unwrap(api.POST('/api/v1/devices/{id}/commands', { params, body })),
    words.command,
  );
}
