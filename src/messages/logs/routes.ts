/** The log of a device over HTTP: reading it, and writing to it. */

import { type Static, Type } from 'typebox';
import { maxFound } from '../../../db/messages/logs/search.ts';
import { maxLogEntryLength, type Severity, severities } from '../../../db/messages/store.ts';
import type { Placement } from '../../../db/registry/index.ts';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { Scheduler } from '../../core/scheduler/scheduler.ts';
import { demandPage } from '../../entity/list.ts';
import { idParams, metaShape, readDate } from '../../entity/routes.ts';
import { oneSlice, showSlices } from '../../entity/row-slices.ts';
import { sendItems, sendList, streamed } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { metaWith, nameIgnored, sayIgnored } from '../../http/ignored-names.ts';
import type { MessagesContext } from '../context.ts';
import { identifying, readLogEntry, readSeverity, readSourceTime } from '../payload/log-entry.ts';
import { eachEntry } from './entries.ts';
import { logShape, showLog, type WireLog } from './log-entry.ts';
import { logSearchRoutes } from './search.ts';
import { supportRoutes } from './support.ts';

const query = Type.Object({
  severity: Type.Optional(
    Type.String({
      description: `This level and those above it, of ${severities.slice(0, -1).join(', ')}; or lifecycle alone.`,
    }),
  ),
  from: Type.Optional(Type.String({ description: 'ISO 8601, inclusive, on the time at the source.' })),
  to: Type.Optional(Type.String({ description: 'ISO 8601, exclusive, on the time at the source.' })),
  text: Type.Optional(
    Type.String({
      description: `Contained in message, details or code, ignoring case; at most ${maxFound} entries are found with it.`,
    }),
  ),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});

const answer = Type.Object(
  { logs: Type.Object({ results: Type.Array(logShape), meta: metaShape }) },
  { description: 'One page of entries, newest first.' },
);

const maxEntries = 1000;
const entryBody = Type.Object(
  {
    message: Type.Optional(Type.Unknown()),
    details: Type.Optional(Type.Unknown()),
    severity: Type.Optional(
      Type.Unknown({
        description: `One of ${severities.join(', ')}, also informational and warning; info when it is absent.`,
      }),
    ),
    code: Type.Optional(Type.Unknown()),
    tags: Type.Optional(Type.Unknown({ description: 'A list of texts, or one.' })),
    sourceTimestamp: Type.Optional(
      Type.Unknown({ description: 'ISO 8601 or milliseconds since 1970; now when it is absent.' }),
    ),
    custom: Type.Optional(
      Type.Unknown({
        description: 'Further properties. Whatever else is next to it is kept in it, under its name.',
      }),
    ),
  },
  {
    description: `At most ${maxLogEntryLength} bytes of JSON. Of which device it is, the path says alone.`,
    additionalProperties: true,
  },
);
const body = Type.Union([entryBody, Type.Array(entryBody, { minItems: 1, maxItems: maxEntries })]);

type LogQuery = Static<typeof query>;

/** Searches that run at once in the one thread that reads; accounts take turns, then callers. */
const readsAtOnce = 2;

/** GET and POST /devices/{id}/logs, POST /logs/search, and what is kept of the log for support. */
export function logRoutes(app: App, ctx: MessagesContext): void {
  const turns = new Scheduler({ atOnce: readsAtOnce });
  app.get(
    '/devices/:id/logs',
    {
      config: {
        right: ['subscribe', 'device'],
        errors: ['notFound', 'deleted', 'pageOutside', 'forbidden', 'tooMany'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Messages'],
        operationId: 'listDeviceLogs',
        summary: 'Read the log of a device, newest first',
        description: 'Returns one page. Filters by severity, time and text are combined.',
        params: idParams,
        querystring: query,
        response: { 200: streamed(answer) },
      },
    },
    async (request, reply) => {
      const ignored = nameIgnored(request, reply, query);
      const { caller, params } = request;
      const { results, meta } = await readLogs(ctx, caller, params.id, request.query, turns);
      return sendList(reply, 'logs', { results, meta: metaWith(meta, ignored) });
    },
  );
  app.post(
    '/devices/:id/logs',
    {
      config: {
        creates: true,
        whenFull: true,
        right: ['create', 'logEntry'],
        errors: ['notFound', 'deleted', 'forbidden', 'storeFull'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Messages'],
        operationId: 'writeDeviceLogs',
        summary: 'Write entries to the log of a device; subscribers of its _log receive them',
        description:
          'They are read as on `_log`. Unlike there, an invalid severity or sourceTimestamp, NUL, unpaired surrogates, `__proto__` and `constructor.prototype` are refused. They are on disk before the answer is sent.',
        params: idParams,
        body,
        response: {
          200: streamed(
            Type.Object(
              { logs: Type.Array(logShape, { maxItems: maxEntries }) },
              { description: 'The entries as they are stored, in their order.' },
            ),
          ),
        },
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const logs = await writeLogs(ctx, caller, params.id, request.body);
      const names = new Set([request.body].flat().flatMap((entry) => Object.keys(entry)));
      sayIgnored(
        request,
        reply,
        [...names].filter((name) => identifying.has(name)),
      );
      const items = showSlices(oneSlice(caller, logs), () => (log) => log);
      return sendItems(reply, '{"logs":[', items, ']}');
    },
  );
  logSearchRoutes(app, ctx, turns);
  supportRoutes(app, ctx, turns);
}

/**
 * One page of a device's log entries, newest first, read in turns. @throws PlatformError 403/21, 404/100, 410/107 for the device;
 * 400/106 for a bad filter, or a text that would be looked for in too many entries; 416/109 past the last page.
 */
async function readLogs(ctx: MessagesContext, caller: Caller, deviceId: string, query: LogQuery, turns: Scheduler) {
  const { access, messages } = ctx;
  const device = demandDevice(access, caller, deviceId);
  const { page = 1, pageSize = 10 } = query;
  const window = access.historyWindowOf(caller, device);
  const filter = { ...readFilter(query), window };
  const read = await turns.run(laneOf(caller), 1, () => messages.logs.read(device.id, filter, { page, pageSize }));
  // The device may have been moved or deleted while the thread was reading.
  demandDevice(access, caller, deviceId);
  if (!read) throw invalid('text', 'would search too many entries: narrow the range with from and to');
  demandPage(page, pageSize, read.total);
  const results = eachEntry(ctx, caller, read, turns, (current, entry) => {
    const now = access.historyWindowOf(current, demandDevice(access, current, deviceId));
    return now.sees(entry.received) ? showLog(entry) : undefined;
  });
  return { results, meta: { count: read.total, page, pageSize, sortOrder: 'desc' as const } };
}

/**
 * Writes entries, each read as a payload on `_log`; they are on disk when it resolves to them. @throws PlatformError 403/21, 404/100,
 * 410/107 for the device; 400/106 for an entry that is too long, or whose severity or time is invalid; 507 for a full disk.
 */
export async function writeLogs(
  { access, clock, publisher }: Pick<MessagesContext, 'access' | 'clock' | 'publisher'>,
  caller: Caller,
  deviceId: string,
  given: Static<typeof body>,
): Promise<WireLog[]> {
  const device = demandDevice(access, caller, deviceId);
  const received = clock.now();
  const posted = [given].flat().map((one, index) => {
    const place = Array.isArray(given) ? [index] : [];
    checkEntry(one, place);
    const payload = Buffer.from(JSON.stringify(one));
    if (payload.length > maxLogEntryLength)
      throw invalid(place.join() || 'body', `has more than ${maxLogEntryLength} bytes`);
    return { payload, entry: { ...readLogEntry(payload, received), received } };
  });
  // All in one turn, and so in one transaction; the answer waits for every one, whatever becomes of another.
  const stored = await Promise.allSettled(
    posted.map(({ entry, payload }) => publisher.logPosted(device, entry, payload)),
  );
  return stored.map((one, index) => {
    const { entry } = posted[index] as (typeof posted)[number];
    if (one.status === 'rejected') throw one.reason;
    return showLog({ ...entry, id: one.value, accountId: device.accountId, deviceId: device.id, byService: false });
  });
}

/** Anyone who gets an answer is told what `_log` takes in silence. @throws PlatformError 400/106. */
function checkEntry({ severity, sourceTimestamp }: Static<typeof entryBody>, place: number[]): void {
  if (severity !== undefined && severity !== null && !readSeverity(severity))
    throw invalid([...place, 'severity'].join('.'), `must be one of ${severities.join(', ')}`);
  const isTimed = sourceTimestamp !== undefined && sourceTimestamp !== null;
  if (isTimed && readSourceTime(sourceTimestamp) === undefined)
    throw invalid([...place, 'sourceTimestamp'].join('.'), 'must be an ISO 8601 date, or milliseconds since 1970');
}

function demandDevice(access: Access, caller: Caller, deviceId: string): Placement {
  const device = access.placement(deviceId);
  if (!device || !access.reaches(caller, device.accountId, device.organizationId)) throw new PlatformError('notFound');
  if (device.deleted !== null) throw new PlatformError('deleted');
  return device;
}

function readFilter({ severity, from, to, text }: LogQuery) {
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
