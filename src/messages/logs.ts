/** Reading the log of a device (decisions 7). */
import { type Static, Type } from 'typebox';
import { type LogEntry, type LogFilter, type Severity, severities } from '../../db/series.js';
import type { Caller } from '../access.js';
import type { Context } from '../context.js';
import { oneOf } from '../entity/listing.js';
import { metaShape, nameIgnored } from '../entity/routes.js';
import { invalid, PlatformError } from '../errors.js';
import type { App } from '../http.js';
import { readSeverity } from './payload.js';
import { readDate } from './query.js';

const query = Type.Object({
  severity: Type.Optional(
    Type.String({
      description: `This level and those above it, of ${severities.slice(0, -1).join(', ')}; or lifecycle alone.`,
    }),
  ),
  from: Type.Optional(Type.String({ description: 'ISO 8601, inclusive, on the time at the source.' })),
  to: Type.Optional(Type.String({ description: 'ISO 8601, exclusive, on the time at the source.' })),
  text: Type.Optional(Type.String({ description: 'Contained in message, details or code, ignoring case.' })),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});

const text = Type.Union([Type.String(), Type.Null()]);
const logShape = Type.Object({
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
});
const answer = Type.Object(
  { logs: Type.Object({ results: Type.Array(logShape), meta: metaShape }) },
  { description: 'One page of entries, newest first.' },
);

export type LogQuery = Static<typeof query>;
export type LogAnswer = Static<typeof answer>;

/** GET /devices/{id}/logs. */
export function logRoutes(app: App, ctx: Context): void {
  app.get(
    '/devices/:id/logs',
    {
      config: {
        right: ['read', 'device'],
        errors: ['notFound', 'deleted', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Messages'],
        summary: 'Read the log of a device, newest first',
        params: Type.Object({ id: Type.String() }),
        querystring: query,
        response: { 200: answer },
      },
    },
    async (request, reply) => {
      nameIgnored(request, reply, query);
      return readLogs(ctx, request.caller, request.params.id, request.query);
    },
  );
}

/**
 * One page of a device's log entries, newest first.
 * @throws PlatformError 403/21, 404/100, 410/107 for the device; 400/106 for a bad filter; 416/109 past the last page.
 */
export function readLogs(
  { access, messages }: Pick<Context, 'access' | 'messages'>,
  caller: Caller,
  deviceId: string,
  query: LogQuery,
): LogAnswer {
  access.demand(caller, 'read', 'device');
  const device = access.placement(deviceId);
  if (!device || !access.reaches(caller, device.accountId, device.organizationId)) throw new PlatformError('notFound');
  if (device.deleted !== null) throw new PlatformError('deleted');

  const { page = 1, pageSize = 10 } = query;
  const { entries, total } = messages.readLogs(device.id, readFilter(query), { page, pageSize });
  if (page > 1 && (page - 1) * pageSize >= total) throw new PlatformError('pageOutside');
  return { logs: { results: entries.map(showLog), meta: { count: total, page, pageSize, sortOrder: 'desc' } } };
}

function readFilter({ severity, from, to, text }: LogQuery): LogFilter {
  return {
    severities: severity === undefined ? undefined : atOrAbove(severity),
    from: readDate('from', from),
    to: readDate('to', to),
    text,
  };
}

function atOrAbove(name: string): readonly Severity[] {
  const severity = readSeverity(name);
  if (!severity) throw invalid('severity', `must be one of ${severities.join(', ')}`);
  return severity === 'lifecycle' ? ['lifecycle'] : severities.slice(0, severities.indexOf(severity) + 1);
}

function showLog({ time, received, ...entry }: LogEntry): LogAnswer['logs']['results'][number] {
  return {
    ...entry,
    sourceTimestamp: new Date(time).toISOString(),
    received: new Date(received).toISOString(),
  };
}
