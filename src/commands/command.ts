/** A command as a row of the registry and on the wire. */
import { type Selectable, sql } from 'kysely';
import { type Static, Type } from 'typebox';
import { DateText, Id, Nullable, oneOf, type Row } from '../../db/registry/records.ts';
import { JsonText } from '../http/answers/streamed-list.ts';

export type Command = Selectable<Row<'commands'>>;

/** Bytes of a payload or a result, as JSON. */
export const maxBytes = 64 * 1024;

export const commandStates = [
  'queued',
  'sent',
  'accepted',
  'succeeded',
  'failed',
  'timedOut',
  'expired',
  'cancelled',
] as const;
export type CommandState = (typeof commandStates)[number];

/** As the indexes of open commands have it: a parameter would not find it. */
export const isOpenCommand = sql<boolean>`"state" in ('queued', 'sent', 'accepted')`;

export function isOpen({ state }: Pick<Command, 'state'>): boolean {
  return state === 'queued' || state === 'sent' || state === 'accepted';
}

const anyJson = Type.Unsafe<unknown>({ description: 'Any JSON.' });
export const commandProperties = {
  name: Type.String({ minLength: 1, maxLength: 100 }),
  payload: Type.Optional(anyJson),
  timeoutSeconds: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 86_400,
      default: 30,
      description: 'How long the device may take from when it has got the command, and again once it has accepted it.',
    }),
  ),
  expiresAt: Type.Optional(
    Type.String({ description: 'ISO 8601: until when it waits for the device; in 24 hours, or in 30 days at most.' }),
  ),
  parallel: Type.Optional(
    Type.Boolean({ default: false, description: 'Do not wait for the end of earlier commands of the device.' }),
  ),
};
export const commandBody = Type.Object(commandProperties);
export type CommandBody = Static<typeof commandBody>;

const date = Nullable(DateText);
export const commandShape = Type.Object({
  id: Id,
  accountId: Id,
  deviceId: Id,
  created: DateText,
  createdById: Type.String(),
  name: Type.String(),
  payload: anyJson,
  parallel: Type.Boolean(),
  timeoutSeconds: Type.Integer(),
  expiresAt: DateText,
  state: oneOf(commandStates),
  attempt: Type.Integer({ description: 'How often it was sent.' }),
  sent: date,
  accepted: date,
  finished: date,
  result: anyJson,
  lateReply: anyJson,
  jobId: Nullable(Type.Unsafe<string>({ ...Id, description: 'The job that has sent it to many devices.' })),
});

/** Columns that are JSON as it came. */
const carried = ['payload', 'result', 'lateReply'] as const;

/** A command as the wire shows it. What it carries is not read: each of the three texts may have 64 KiB. */
export function showCommand(row: Command): JsonText {
  const { id, accountId, deviceId, created, createdById, name, timeoutSeconds, expiresAt, attempt } = row;
  const { sent, accepted, finished, jobId } = row;
  const shown: Omit<Static<typeof commandShape>, (typeof carried)[number]> = {
    ...{ id, accountId, deviceId, created, createdById, name },
    parallel: row.parallel === 1,
    ...{ timeoutSeconds, expiresAt },
    state: row.state as CommandState,
    ...{ attempt, sent, accepted, finished, jobId },
  };
  const texts = carried.map((column) => `,"${column}":${row[column] ?? 'null'}`);
  return new JsonText(`${JSON.stringify(shown).slice(0, -1)}${texts.join('')}}`);
}
