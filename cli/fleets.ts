/** `slipway fleet list|new`. */
import { randomUUID } from 'node:crypto';
import type { Page } from './find-device.ts';
import { type Connection, printError } from './line/options.ts';
import { placeOf } from './line/single.ts';
import { withClient } from './line/work.ts';
import { printJson, printPairs, printTable } from './printed.ts';

interface Fleet {
  id: string;
  name: string;
  filter: string;
  problem: string | null;
  deviceCount?: number;
}

/** The server counts the devices of so many fleets at once. */
const maxListed = 100;

/** The first fleets by name, with how many devices they hold now. */
export async function fleetList(flags: Connection): Promise<void> {
  await withClient(flags, printError, async (client) => {
    const { accountId } = client;
    const asked = { accountId, sortBy: 'name', count: 'devices', pageSize: String(maxListed) };
    const { fleets } = await client.ok<{ fleets: Page<Fleet> }>('GET', `/fleets?${new URLSearchParams(asked)}`);
    const { results, meta } = fleets;
    if (flags.json) return printJson(results);
    printTable(
      ['NAME', 'DEVICES', 'FILTER', 'ID'],
      results.map(({ name, deviceCount, filter, id }) => [name, String(deviceCount), filter, id]),
    );
    for (const { name, problem } of results) if (problem !== null) printError(`${name}: ${problem}`);
    if (meta.count > results.length) printError(`${results.length} of ${meta.count} fleets.`);
    if (meta.count === 0) printError('No fleet.');
  });
}

interface NewFlags extends Connection {
  filter: string;
  organization: string | undefined;
}

export async function fleetNew(flags: NewFlags, [name = '']: readonly string[]): Promise<void> {
  const { filter } = flags;
  await withClient(flags, printError, async (client) => {
    const { accountId } = client;
    const { organization } = await placeOf(client, { template: undefined, organization: flags.organization });
    const { fleet } = await client.ok<{ fleet: Fleet }>('POST', '/fleets', {
      body: { accountId, name, filter, ...(organization && { organizationId: organization }) },
      idempotencyKey: randomUUID(),
    });
    if (flags.json) return printJson(fleet);
    const shown = await client.ok<{ fleet: Fleet }>('GET', `/fleets/${fleet.id}?count=devices`);
    printPairs([
      ['Id', fleet.id],
      ['Devices', String(shown.fleet.deviceCount)],
    ]);
  });
}
