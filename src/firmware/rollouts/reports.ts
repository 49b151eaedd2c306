/** A device's report of its update, over HTTP or on `_firmware/status`. */
import { Ajv } from 'ajv';
import { type Static, Type } from 'typebox';
import { oneOf } from '../../../db/registry/records.ts';
import { invalid } from '../../core/errors.ts';
import { findUnstorable, unstorable } from '../../core/formats/unstorable.ts';
import { reportStates } from './deliveries.ts';

export const reportBody = Type.Object({
  state: oneOf(reportStates),
  firmwareVersion: Type.Optional(
    Type.String({
      maxLength: 64,
      description: 'The version that is offered; with `succeeded`, where it is required, the one that the device runs.',
    }),
  ),
  bytes: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description: 'Downloaded.' })),
  code: Type.Optional(Type.Integer({ minimum: -2_147_483_648, maximum: 2_147_483_647, description: 'Of a failure.' })),
  message: Type.Optional(Type.String({ maxLength: 1000 })),
});

const trusted = { strictTypes: false, strictSchema: false, meta: false, validateSchema: false } as const;
const check = new Ajv(trusted).compile<Static<typeof reportBody>>(reportBody);

/** The JSON of a message. @throws PlatformError 400/106 saying what is wrong with it. */
export function readReport(payload: Buffer): Static<typeof reportBody> {
  const report = readJson(payload);
  if (!check(report)) {
    const [error] = check.errors ?? [];
    throw invalid(error?.instancePath.slice(1).replaceAll('/', '.') ?? '', error?.message ?? 'is invalid');
  }
  return report;
}

/** JSON that can be stored. @throws PlatformError 400/106. */
export function readJson(payload: Buffer): unknown {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload));
  } catch {
    throw invalid('', 'must be JSON');
  }
  const bad = findUnstorable(value);
  if (bad !== undefined) throw invalid(bad, unstorable);
  return value;
}
