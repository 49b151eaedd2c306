/** A log entry as it is shown over HTTP (decisions 7). */

import { type Static, Type } from 'typebox';
import { type LogEntry, severities } from '../../db/messages/store.js';
import { oneOf } from '../entity/listing.js';

const text = Type.Union([Type.String(), Type.Null()]);
export const logShape = Type.Object({
  id: Type.String(),
  accountId: Type.String(),
  deviceId: Type.String(),
  sourceTimestamp: Type.String({ description: 'ISO 8601; when it happened, as the source says.' }),
  received: Type.String({ description: 'ISO 8601; when the service got it.' }),
  severity: oneOf(severities),
  message: text,
  code: text,
  details: text,
  tags: Type.Array(Type.String()),
  custom: Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()]),
  byService: Type.Boolean({
    description: 'Whether the service itself has written it, about a connection; no device or user can say so.',
  }),
});
export type WireLog = Static<typeof logShape>;

/** An entry as the wire shows it, in a fixed order. */
export function showLog(entry: LogEntry): WireLog {
  const { id, accountId, deviceId, severity, message, code, details, tags, custom, byService } = entry;
  const sourceTimestamp = new Date(entry.time).toISOString();
  const received = new Date(entry.received).toISOString();
  return {
    id,
    accountId,
    deviceId,
    sourceTimestamp,
    received,
    severity,
    message,
    code,
    details,
    tags,
    custom,
    byService,
  };
}
