/** The state of a device on the broker: `_set/fields` changes it, `_updates/fields` shows it. */

import { Ajv } from 'ajv';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Registry } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import { failure, PlatformError } from '../../core/errors.ts';
import { isNestedDeeply } from '../../core/formats/json-size.ts';
import { findUnstorable, unstorable } from '../../core/formats/unstorable.ts';
import type { Merged } from '../../core/limits/merged.ts';
import type { Fields } from '../../entity/fields.ts';
import type { Rejection } from '../../ports/publisher.ts';
import { type StateContext, updateState } from './changes.ts';
import { type ShowContext, showDeviceState, stateShape } from './device.ts';

const trusted = { strictTypes: false, strictSchema: false, meta: false, validateSchema: false } as const;
const checkState = new Ajv(trusted).compile<Record<string, unknown>>(stateShape);

/** Fields that wait to be written, by who sets them and device. */
export type FieldsWaiting = Merged<Record<string, unknown>, Row<'devices'>>;

/** The whole state of a live device, as the caller sees it; undefined when there is none. */
export async function readState(
  ctx: { registry: Registry; fields: Fields; access: Access },
  caller: Caller,
  deviceId: string,
): Promise<Record<string, unknown> | undefined> {
  const row = await findEntity(ctx.registry.query, 'devices', deviceId);
  return row && row.deleted === null ? showDeviceState(ctx, row, ctx.access.historyWindowOf(caller, row)) : undefined;
}

/**
 * Applies `{"state":{field:value}}` of `_set/fields`, all or nothing, for a caller that may; the last write wins. Returns why it was
 * refused, or undefined. `versionSaid` is told what a device says that it runs. @throws only what is no fault of the payload.
 */
export async function setState(
  ctx: StateContext & { waiting: FieldsWaiting; versionSaid(device: Caller, version: string): Promise<void> },
  caller: Caller,
  deviceId: string,
  payload: Buffer,
): Promise<Rejection | undefined> {
  try {
    const fields = readStatePayload(payload, customNames(ctx, deviceId));
    await ctx.waiting.writeMerged(`${caller.id} ${deviceId}`, fields, async (wanted) => {
      const row = await updateState(ctx, caller, deviceId, wanted);
      const { firmwareVersion } = wanted;
      if (caller.kind === 'device' && typeof firmwareVersion === 'string')
        await ctx.versionSaid(caller, firmwareVersion);
      return row;
    });
    return undefined;
  } catch (error) {
    if (!(error instanceof PlatformError)) throw error;
    return failure(error.kind, error);
  }
}

/** The JSON of a payload; undefined if it is not JSON or is nested so deeply that parsing it is expensive. */
function parseState(payload: Buffer): unknown {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(payload);
    return isNestedDeeply(text) ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The custom fields of a device by name; `stateShape` has the built-in ones. */
function customNames({ access, fields }: ShowContext, deviceId: string): Set<string> {
  const device = access.placement(deviceId);
  return new Set(device && fields.of('devices', device.deviceTemplateId).map(({ name }) => name));
}

function readStatePayload(payload: Buffer, custom: Set<string>): Record<string, unknown> {
  const refuse = (path: string, message: string) => new PlatformError('invalid', { details: [{ path, message }] });
  const parsed = parseState(payload);
  if (parsed === undefined) throw refuse('', 'must be JSON, and not nested deeply');
  const state = typeof parsed === 'object' && parsed !== null && 'state' in parsed ? parsed.state : undefined;
  if (typeof state !== 'object' || state === null || Array.isArray(state)) throw refuse('state', 'must be an object');
  // Every field takes a plain value, and what is nested deeply is expensive to check.
  for (const [name, value] of Object.entries(state))
    if (typeof value === 'object' && value !== null) throw refuse(name, 'must be a plain value');
  const fields = state as Record<string, unknown>;
  const unknown = Object.keys(fields).filter(
    (name) => !Object.hasOwn(stateShape.properties, name) && !custom.has(name),
  );
  if (unknown.length > 0)
    throw new PlatformError('invalid', {
      details: unknown.slice(0, 20).map((path) => ({ path, message: 'cannot be set' })),
    });
  const bad = findUnstorable(fields);
  if (bad !== undefined) throw refuse(bad, unstorable);
  if (!checkState(fields)) {
    const [error] = checkState.errors ?? [];
    throw refuse(error?.instancePath.slice(1) ?? '', error?.message ?? 'is invalid');
  }
  return fields;
}
