import { existsSync } from 'node:fs';
import type Sqlite from 'better-sqlite3';
import { openSqlite } from '../../sqlite/open.ts';

/** Devices in reach whose logs are read one by one, rather than the log of the whole account. */
const maxDevicesReadApart = 200;

/** From when on the entries of a device may be shown, in milliseconds since 1970; undefined if none of them. */
export type SeenFrom = (deviceId: string) => number | undefined;

const ever = Number.NEGATIVE_INFINITY;

/** Reads registry.db during a search: where devices are now decides about reach, not where they were when they wrote. */
export class LogReach {
  readonly #file: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepare>;

  constructor(path: string) {
    if (!existsSync(path)) throw new Error('There is no registry next to the messages.');
    this.#file = openSqlite(path, { readonly: true });
    this.#statements = prepare(this.#file);
  }

  /** People see what a device has done for them, callers of the whole account (without organizations) all of it. */
  reach(accountId: string, organizationIds: readonly string[] | undefined): SeenFrom {
    const places = organizationIds && new Set(this.#below(organizationIds));
    const known = new Map<string, number | undefined>();
    const look = (deviceId: string) => {
      const device = this.#statements.device.get(deviceId);
      if (device?.accountId !== accountId) return undefined;
      if (!places) return ever;
      if (!places.has(device.organizationId ?? '')) return undefined;
      return device.possessionSince === null ? ever : Date.parse(device.possessionSince) + 1;
    };
    return (deviceId) => {
      if (!known.has(deviceId)) known.set(deviceId, look(deviceId));
      return known.get(deviceId);
    };
  }

  /** The devices that are at or below organizations; undefined if there are more than 200. */
  devicesBelow(organizationIds: readonly string[]): string[] | undefined {
    const below = JSON.stringify(this.#below(organizationIds));
    const devices = this.#statements.devices.all(below, maxDevicesReadApart + 1);
    return devices.length <= maxDevicesReadApart ? devices : undefined;
  }

  close(): void {
    this.#file.close();
  }

  #below(organizationIds: readonly string[]): string[] {
    return this.#statements.below.all(JSON.stringify(organizationIds));
  }
}

function prepare(file: Sqlite.Database) {
  return {
    device: file.prepare<
      [string],
      { accountId: string; organizationId: string | null; possessionSince: string | null }
    >('SELECT "accountId", "organizationId", "possessionSince" FROM "devices" WHERE "id" = ? AND "deleted" IS NULL'),
    devices: file
      .prepare<[string, number], string>(
        `SELECT "id" FROM "devices" WHERE "organizationId" IN (SELECT "value" FROM json_each(?)) AND "deleted" IS NULL
         LIMIT ?`,
      )
      .pluck(),
    below: file
      .prepare<[string], string>(
        `WITH RECURSIVE "reach" AS (
           SELECT "id" FROM "organizations"
           WHERE "id" IN (SELECT "value" FROM json_each(?)) AND "deleted" IS NULL
           UNION
           SELECT o."id" FROM "organizations" o JOIN "reach" r ON o."parentId" = r."id" WHERE o."deleted" IS NULL
         ) SELECT "id" FROM "reach"`,
      )
      .pluck(),
  };
}
