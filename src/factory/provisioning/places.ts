/** Where new devices are to stand: templates and organizations by id, or by a name that only one has. */
import type { Db, Registry } from '../../../db/registry/index.ts';
import type { Caller, Station } from '../../core/caller.ts';
import { invalid, unknownReference } from '../../core/errors.ts';
import { canonicalId, isId } from '../../core/ids.ts';
import { findLive } from '../../entity/verbs.ts';
import { askedPlace } from '../../registry/devices/station-limits.ts';
import { defaultTemplate } from '../../registry/templates.ts';

/** Where a new device is to stand. */
export interface DevicePlace {
  deviceTemplateId: string;
  organizationId: string | null;
}

/** A template and an organization, each by id or by name. */
export interface NamedPlace {
  template?: string;
  organization?: string;
}

/** Templates and organizations by id, or by a name that only one has; what has been found is remembered. */
export class Places {
  readonly #db: Db;
  readonly #accountId: string;
  readonly #known = new Map<string, string | undefined>();

  constructor(db: Db, accountId: string) {
    this.#db = db;
    this.#accountId = accountId;
  }

  /**
   * A station finds only its own. @throws PlatformError 400/102 naming `path`; 400/106 for a name that
   * several have.
   */
  async find(caller: Caller, table: 'deviceTemplates' | 'organizations', path: string, text: string): Promise<string> {
    const key = `${table}/${text}`;
    if (!this.#known.has(key))
      this.#known.set(
        key,
        caller.kind === 'station' ? await this.#own(caller, table, text) : await this.#findNamed(table, path, text),
      );
    const id = this.#known.get(key);
    // Who gave an id knows it, and an answer that has ids of others in it is looked at twice.
    if (id === undefined) throw unknownReference(path, isId(text) ? undefined : text);
    return id;
  }

  async #own(station: Station, table: 'deviceTemplates' | 'organizations', text: string): Promise<string | undefined> {
    const id = table === 'deviceTemplates' ? station.deviceTemplateId : station.organizationId;
    const row = id === null ? undefined : await findLive(this.#db, table, this.#accountId, id);
    return row && (row.id === canonicalId(text) || row.name === text) ? row.id : undefined;
  }

  async #findNamed(
    table: 'deviceTemplates' | 'organizations',
    path: string,
    text: string,
  ): Promise<string | undefined> {
    const row = await findLive(this.#db, table, this.#accountId, canonicalId(text));
    if (row) return row.id;
    const named = await this.#db
      .selectFrom(table)
      .select('id')
      .where('accountId', '=', this.#accountId)
      .where('name', '=', text)
      .where('deleted', 'is', null)
      .limit(2)
      .execute();
    if (named.length > 1) throw invalid(path, 'is the name of several entities; use the id');
    return named[0]?.id;
  }
}

/**
 * Where devices of a job stand whose rows do not say it. @throws PlatformError 400/102 naming `template` or
 * `organization`, also for a station that asks for others than its own.
 */
export async function defaultPlace(
  { registry }: { registry: Registry },
  caller: Caller,
  asked: NamedPlace,
): Promise<DevicePlace> {
  const wanted = await namedPlace({ registry }, caller, asked);
  const { deviceTemplateId, organizationId = null } = askedPlace<Partial<DevicePlace>>(caller, wanted);
  if (deviceTemplateId !== undefined) return { deviceTemplateId, organizationId };
  const usual = await defaultTemplate(registry.query, 'deviceTemplates', caller.accountId);
  if (!usual) throw unknownReference('template');
  return { deviceTemplateId: usual.id, organizationId };
}

/** The ids of what is named, and nothing of what is not. @throws PlatformError as `Places.find`. */
export async function namedPlace(
  { registry }: { registry: Registry },
  caller: Caller,
  { template, organization }: NamedPlace,
): Promise<{ deviceTemplateId?: string; organizationId?: string }> {
  const places = new Places(registry.query, caller.accountId);
  return {
    ...(template && { deviceTemplateId: await places.find(caller, 'deviceTemplates', 'template', template) }),
    ...(organization && { organizationId: await places.find(caller, 'organizations', 'organization', organization) }),
  };
}
