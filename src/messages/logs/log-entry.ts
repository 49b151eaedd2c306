/** A log entry as it is shown over HTTP. */

import { type Static, Type } from 'typebox';
import { type LogEntry, severities } from '../../../db/messages/store.ts';
import { oneOf } from '../../../db/registry/records.ts';

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

const milliseconds = (description: string) => Type.Integer({ description: `Milliseconds since 1970; ${description}` });
/** An entry as a search shows it: what existing clients read, next to what GET shows. */
export const sourceShape = Type.Object({
  ...logShape.properties,
  sourceId: Type.String({ description: 'The device.' }),
  sourceType: Type.Literal('deviceId'),
  deviceTemplateId: text,
  organizationId: text,
  sourceTimestamp: milliseconds('when it happened, as the source says.'),
  serviceTimestamp: milliseconds('when the service got it.'),
  code: Type.Union([Type.Number(), Type.String(), Type.Null()], { description: 'As it was sent.' }),
  incidents: Type.Array(Type.Unknown()),
});
export type SearchedLog = Static<typeof sourceShape>;

/** An entry as a search shows it; `place` is where the device stands now. */
export function showSource(
  entry: LogEntry,
  place: { deviceTemplateId: string; organizationId: string | null } | undefined,
): SearchedLog {
  const { custom, ...shown } = showLog(entry);
  const connected = custom?.connected;
  return {
    ...shown,
    sourceId: entry.deviceId,
    sourceType: 'deviceId',
    deviceTemplateId: place?.deviceTemplateId ?? null,
    organizationId: place?.organizationId ?? null,
    sourceTimestamp: entry.time,
    serviceTimestamp: entry.received,
    code: entry.codeIsNumber ? Number(entry.code) : entry.code,
    custom: typeof connected === 'boolean' ? { ...custom, connected: String(connected) } : custom,
    incidents: [],
  };
}
