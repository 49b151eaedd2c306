/** POST /logs/search: entries of all devices in reach, asked for with a part of Elasticsearch's query language. */

import { Type } from 'typebox';
import {
  type LogCondition,
  type LogOrder,
  maxFound,
  type TextField,
  textFields,
} from '../../../db/messages/logs/search.ts';
import { wordsOf } from '../../../db/messages/logs/terms.ts';
import { type LogQuestion, type Severity, severities, timeLimit } from '../../../db/messages/store.ts';
import { parseDate } from '../../../db/sqlite/dates.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import { invalid } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import type { Scheduler } from '../../core/scheduler/scheduler.ts';
import { type Items, sendItems, streamed } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import type { MessagesContext } from '../context.ts';
import { readSeverity } from '../payload/log-entry.ts';
import { eachEntry } from './entries.ts';
import { showSource, sourceShape } from './log-entry.ts';

const defaultSize = 10;
const maxClauses = 32;
const maxWords = 32;
const maxTerms = 100;

/** Supported clauses by their position, for errors. */
const supported = {
  search: ['query', 'size', 'from', 'sort'],
  query: ['bool'],
  bool: ['must'],
  clause: ['term', 'terms', 'range', 'match'],
  term: ['deviceId', 'sourceId', 'severity', ...textFields, 'custom.<name>'],
  terms: ['deviceId', 'sourceId', 'severity'],
  value: ['value'],
  range: ['sourceTimestamp', 'received', 'serviceTimestamp'],
  bound: ['gt', 'gte', 'lt', 'lte'],
  match: textFields,
  words: ['query', 'operator'],
  sort: ['sourceTimestamp', 'serviceTimestamp', 'received', 'severity', 'code', 'deviceId', 'sourceId', '_score'],
  order: ['order (asc or desc; of _score desc alone)'],
} as const satisfies Record<string, readonly string[]>;
type SearchPart = keyof typeof supported;

const body = Type.Object({
  query: Type.Optional(
    Type.Unknown({
      description:
        '`{"bool":{"must":[clause, …]}}`, every entry when absent. A clause is `{"term":{field: value}}`, ' +
        '`{"range":{field: {gt|gte|lt|lte: date}}}` or `{"match":{field: words}}`, also `{"match":{field: {query, operator}}}` ' +
        'with `or` (at least one of the words) or `and`; `{"terms":{field: [value, …]}}` for deviceId and severity. sourceId is deviceId, serviceTimestamp is received. Fields of term: deviceId, severity, message, code, details, tags, ' +
        'custom.<name>; of range: sourceTimestamp, received; of match: message, code, details, tags.',
    }),
  ),
  size: Type.Optional(Type.Integer({ minimum: 0, maximum: 1000, default: defaultSize })),
  from: Type.Optional(
    Type.Integer({ minimum: 0, default: 0, description: `Hits to skip; with size at most ${maxFound}.` }),
  ),
  sort: Type.Optional(
    Type.Unknown({
      description:
        '`[{"sourceTimestamp":"desc"}]`, `asc`, or `["_score"]`; also by serviceTimestamp, severity (emergency first), code and deviceId, of the newest entries that fit; the best first with a match clause, else the newest.',
    }),
  ),
});

const answer = Type.Object(
  {
    hits: Type.Object({
      total: Type.Integer({ description: `${maxFound} when there are as many or more.` }),
      max_score: Type.Union([Type.Number(), Type.Null()]),
      hits: Type.Array(Type.Object({ _id: Type.String(), _score: Type.Number(), _source: sourceShape })),
    }),
  },
  { description: 'Some of the entries that fit.' },
);

/** The result; each hit is `{_id, _score, _source}`. */
interface Found {
  total: number;
  maxScore: number | null;
  hits: Items;
}

/** POST /logs/search; searches wait for their turn in `turns`. */
export function logSearchRoutes(app: App, ctx: MessagesContext, turns: Scheduler): void {
  app.post(
    '/logs/search',
    {
      config: { right: ['subscribe', 'device'], errors: ['forbidden', 'tooMany'] },
      schema: {
        tags: ['Messages'],
        operationId: 'searchLogs',
        summary: 'Search the logs of all devices in reach',
        description: 'Takes a part of the query language of Elasticsearch and returns hits in its form.',
        body,
        response: { 200: streamed(answer) },
      },
    },
    async ({ caller, body }, reply) => {
      const { total, maxScore, hits } = await searchLogs(ctx, caller, body, turns);
      const before = `{"hits":{"total":${total},"max_score":${JSON.stringify(maxScore)},"hits":[`;
      return sendItems(reply, before, hits, ']}}');
    },
  );
}

/**
 * The entries that fit, of live devices that the caller reaches now; each part of them is read when it is its turn.
 * @throws PlatformError 403/21; 400/106 naming the clause that is not understood, or for a search that takes too long.
 */
async function searchLogs(ctx: MessagesContext, caller: Caller, asked: object, turns: Scheduler): Promise<Found> {
  const { access, messages } = ctx;
  const question = readSearch(caller, asked);
  if (!question) return { total: 0, maxScore: null, hits: async function* () {} };
  const found = await turns.run(laneOf(caller), 1, () => messages.logs.search(question));
  if (!found) throw invalid('query', 'looks at too many entries: narrow it down by sourceTimestamp, deviceId or words');
  const hits = eachEntry(ctx, caller, found, turns, (current, { score, ...entry }) => {
    // A device may have been moved or deleted while the thread was reading.
    const device = access.reachableDevice(current, entry.deviceId, 'subscribe');
    if (!device || !access.historyWindowOf(current, device).sees(entry.received)) return undefined;
    return { _id: entry.id, _score: score, _source: showSource(entry, device) };
  });
  return { total: found.total, maxScore: found.total > 0 ? found.maxScore : null, hits };
}

/** The condition of a clause; `never` if nothing can fulfil it. */
interface Part {
  condition?: LogCondition;
  deviceId?: string;
  severity?: Severity;
  severities?: Severity[];
  range?: { from: number; to: number };
  never?: true;
}

/** The question that a body asks; undefined when nothing can be the answer. */
function readSearch(caller: Caller, asked: object): LogQuestion | undefined {
  const { query, sort, size = defaultSize, from: offset = 0, ...rest } = asked as Record<string, unknown>;
  refuseOthers('', rest, 'search');
  if (Number(offset) + Number(size) > maxFound) throw invalid('from', `plus size must be at most ${maxFound}`);
  const parts = clausesOf(query).map(({ path, clause }) => readClause(path, clause));
  const order = readSort(sort);
  if (parts.some((part) => part.never)) return undefined;

  const deviceIds = new Set(parts.flatMap(({ deviceId }) => deviceId ?? []));
  const levels = new Set(parts.flatMap(({ severity }) => severity ?? []));
  const choices = parts.flatMap((part) => (part.severities ? [part.severities] : []));
  const wanted = (levels.size > 0 ? [...levels] : severities).filter((level) =>
    choices.every((of) => of.includes(level)),
  );
  if (wanted.length === 0) return undefined;
  const ranges = parts.flatMap(({ range }) => range ?? []);
  // An entry has one device and one severity.
  if (deviceIds.size > 1 || levels.size > 1) return undefined;
  const conditions = parts.flatMap(({ condition }) => condition ?? []);
  const [deviceId] = deviceIds;
  return {
    scope: { accountId: caller.accountId, organizationIds: organizationsOf(caller), deviceId },
    from: Math.max(-timeLimit, ...ranges.map(({ from }) => from)),
    to: Math.min(timeLimit + 1, ...ranges.map(({ to }) => to)),
    severities: wanted,
    conditions,
    sort: order ?? (conditions.some(({ kind }) => kind === 'words') ? 'score' : 'newest'),
    offset: Number(offset),
    limit: Number(size),
  };
}

/** Undefined for somebody who reaches the whole account. */
function organizationsOf(caller: Caller): readonly string[] | undefined {
  if (isAccountWide(caller)) return undefined;
  return caller.kind === 'endUser' ? caller.organizationIds : [];
}

function clausesOf(query: unknown): Array<{ path: string; clause: unknown }> {
  if (query === undefined) return [];
  const { bool, ...others } = anObject('query', query);
  refuseOthers('query', others, 'query');
  if (bool === undefined) return [];
  const { must = [], ...rest } = anObject('query.bool', bool);
  refuseOthers('query.bool', rest, 'bool');
  const path = 'query.bool.must';
  if (!Array.isArray(must)) return [{ path, clause: must }];
  if (must.length > maxClauses) throw invalid(path, `has more than ${maxClauses} clauses`);
  return must.map((clause, index) => ({ path: `${path}.${index}`, clause }));
}

function readClause(path: string, given: unknown): Part {
  const [name, clause] = anOnly(path, given);
  const at = `${path}.${name}`;
  if (name !== 'term' && name !== 'terms' && name !== 'range' && name !== 'match') throw unsupported(at, 'clause');
  const [field, value] = anOnly(at, clause);
  const where = `${at}.${field}`;
  if (name === 'term') return readTerm(where, field, value);
  if (name === 'terms') return readTerms(where, field, value);
  if (name === 'range') return readRange(where, field, value);
  return readMatch(where, field, value);
}

function readTerm(path: string, field: string, given: unknown): Part {
  const value = scalarOf(path, given, 'value');
  if (field.startsWith('custom.')) return { condition: { kind: 'custom', path: field.slice(7).split('.'), value } };
  if (isTextField(field)) return { condition: { kind: 'equals', field, value: String(value) } };
  if (isDevice(field)) return { deviceId: String(value) };
  if (field !== 'severity') throw unsupported(path, 'term');
  const severity = readSeverity(value);
  if (!severity) throw invalid(path, `must be one of ${severities.join(', ')}`);
  return { severity };
}

/** The device of the entries; existing clients call it the source. */
function isDevice(field: string): boolean {
  return field === 'deviceId' || field === 'sourceId';
}

function readTerms(path: string, field: string, given: unknown): Part {
  if (!isDevice(field) && field !== 'severity') throw unsupported(path, 'terms');
  if (!Array.isArray(given) || given.length > maxTerms) throw invalid(path, `must be a list of at most ${maxTerms}`);
  const parts = given.map((value, index) => readTerm(`${path}.${index}`, field, value));
  if (parts.length === 0) return { never: true };
  if (field === 'severity') return { severities: parts.flatMap(({ severity }) => severity ?? []) };
  return { condition: { kind: 'devices', ids: parts.flatMap(({ deviceId }) => deviceId ?? []) } };
}

function readRange(path: string, field: string, given: unknown): Part {
  if (field !== 'sourceTimestamp' && field !== 'received' && field !== 'serviceTimestamp')
    throw unsupported(path, 'range');
  const { gt, gte, lt, lte, ...rest } = anObject(path, given);
  refuseOthers(path, rest, 'bound');
  const bound = (name: string, value: unknown, beyond: number, open: number) =>
    value === undefined ? open : instantOf(`${path}.${name}`, value) + beyond;
  const range = {
    from: Math.max(bound('gt', gt, 1, -timeLimit), bound('gte', gte, 0, -timeLimit)),
    to: Math.min(bound('lt', lt, 0, timeLimit + 1), bound('lte', lte, 1, timeLimit + 1)),
  };
  return field !== 'sourceTimestamp' ? { condition: { kind: 'received', ...range } } : { range };
}

function readMatch(path: string, field: string, given: unknown): Part {
  if (!isTextField(field)) throw unsupported(path, 'match');
  const { query, operator = 'or', ...rest } = isObject(given) ? given : { query: given };
  refuseOthers(path, rest, 'words');
  if (operator !== 'or' && operator !== 'and') throw invalid(`${path}.operator`, 'must be or, and');
  const words = wordsOf(String(scalarOf(path, query, 'query')));
  if (words.length > maxWords) throw invalid(path, `has more than ${maxWords} words`);
  if (words.length === 0) return { never: true };
  return { condition: { kind: 'words', field, words, all: operator === 'and' } };
}

/** Sort columns, by their names in a search. */
const columns: Record<string, LogOrder['by']> = {
  serviceTimestamp: 'received',
  received: 'received',
  severity: 'severity',
  code: 'code',
  deviceId: 'deviceId',
  sourceId: 'deviceId',
};

function readSort(given: unknown): LogQuestion['sort'] | undefined {
  if (given === undefined) return undefined;
  const keys = Array.isArray(given) ? given : [given];
  if (keys.length !== 1) throw invalid('sort', 'must have exactly one key');
  const key: unknown = keys[0];
  const [name, value] = typeof key === 'string' ? [key, undefined] : anOnly('sort', key);
  const path = `sort.${name}`;
  const { order = name === '_score' ? 'desc' : 'asc', ...rest } = isObject(value) ? value : { order: value };
  refuseOthers(path, rest, 'order');
  if (name === '_score' && order === 'desc') return 'score';
  if (name === 'sourceTimestamp' && order === 'desc') return 'newest';
  if (name === 'sourceTimestamp' && order === 'asc') return 'oldest';
  const by = Object.hasOwn(columns, name) ? columns[name] : undefined;
  if (by && (order === 'asc' || order === 'desc')) return { by, order };
  throw unsupported(path, by || name === 'sourceTimestamp' || name === '_score' ? 'order' : 'sort');
}

// Reading what may be anything

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function anObject(path: string, value: unknown): Record<string, unknown> {
  if (!isObject(value)) throw invalid(path, 'must be an object');
  return value;
}

/** The one property of an object that must have one. */
function anOnly(path: string, value: unknown): [string, unknown] {
  const [only, ...others] = Object.entries(anObject(path, value));
  if (!only || others.length > 0) throw invalid(path, 'must have one property');
  return only;
}

/** A value, or an object that holds it under `name` alone. */
function scalarOf(path: string, given: unknown, name: 'value' | 'query'): string | number | boolean {
  const { [name]: value, ...rest } = isObject(given) ? given : { [name]: given };
  refuseOthers(path, rest, name === 'value' ? 'value' : 'words');
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value;
  throw invalid(path, 'must be a text, a number or a boolean');
}

/** Milliseconds since 1970 of an ISO 8601 date, or of such a number. */
function instantOf(path: string, value: unknown): number {
  const time = typeof value === 'string' ? parseDate(value) : value;
  if (typeof time !== 'number' || !Number.isInteger(time) || Math.abs(time) > timeLimit)
    throw invalid(path, 'must be an ISO 8601 date, or milliseconds since 1970');
  return time;
}

function refuseOthers(path: string, rest: Record<string, unknown>, place: SearchPart): void {
  const [name] = Object.keys(rest);
  if (name !== undefined) throw unsupported(path === '' ? name : `${path}.${name}`, place);
}

function unsupported(path: string, place: SearchPart) {
  return invalid(path, `is not supported in a search; supported here: ${supported[place].join(', ')}`);
}

function isTextField(field: string): field is TextField {
  return textFields.some((one) => one === field);
}
