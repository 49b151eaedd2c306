/** Replies of devices to commands, on `_commands/replies`. */
import { Ajv } from 'ajv';
import { type Static, Type } from 'typebox';
import { oneOf } from '../../db/registry/records.ts';
import { invalid } from '../core/errors.ts';
import { readJson } from '../firmware/rollouts/reports.ts';
import { maxBytes } from './command.ts';

const reply = Type.Object({
  id: Type.String({ maxLength: 64 }),
  status: oneOf(['accepted', 'succeeded', 'failed']),
  result: Type.Optional(Type.Unsafe<unknown>({})),
});
export type Reply = Static<typeof reply>;

const trusted = { strictTypes: false, strictSchema: false, meta: false, validateSchema: false } as const;
const check = new Ajv(trusted).compile<Reply>(reply);

/** @throws PlatformError 400/106 saying what is wrong with it. */
export function readReply(payload: Buffer): Reply {
  if (payload.length > maxBytes) throw invalid('', `has more than ${maxBytes} bytes`);
  const value = readJson(payload);
  if (check(value)) return value;
  const [error] = check.errors ?? [];
  throw invalid(error?.instancePath.slice(1) ?? '', error?.message ?? 'is invalid');
}
