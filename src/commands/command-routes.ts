/** Commands to one device over HTTP. */
import type { FastifyReply } from 'fastify';
import { type Static, Type } from 'typebox';
import type { Registry } from '../../db/registry/index.ts';
import { oneOf, type Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { PlatformError } from '../core/errors.ts';
import { currentCaller } from '../entity/current-caller.ts';
import { noteMade } from '../entity/kept-answers.ts';
import { pageOfTable } from '../entity/list.ts';
import { idParams, listResponse } from '../entity/routes.ts';
import { showSlices } from '../entity/row-slices.ts';
import { demandLive, findReached, writeAs } from '../entity/verbs.ts';
import type { DownlinkContext } from '../firmware/context.ts';
import { sendList } from '../http/answers/streamed-list.ts';
import type { App } from '../http/app.ts';
import { metaWith, nameIgnored } from '../http/ignored-names.ts';
import { type Command, commandBody, commandShape, commandStates, isOpen, showCommand } from './command.ts';

const tags = ['Commands'];
const path = '/devices/:id/commands';
/** Milliseconds that an answer waits for a device. */
const maxWait = 60_000;
/** Answers of one caller that wait at once. */
const maxWaiting = 100;

const waitQuery = Type.Object({
  wait: Type.Optional(
    Type.Integer({ minimum: 0, maximum: 1, description: '1: answer when it has ended, in 60 seconds at most.' }),
  ),
});
const listQuery = Type.Object({
  state: Type.Optional(oneOf(commandStates)),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});
const commandParams = Type.Object({ id: Type.String(), commandId: Type.String() });
const one = (description: string) => ({ 200: Type.Object({ command: commandShape }, { description }) });
const errors = ['notFound', 'deleted', 'forbidden'] as const;

export function commandRoutes(app: App, ctx: DownlinkContext): void {
  const { registry, commands } = ctx;
  const waiting = new Map<string, number>();

  app.post(
    path,
    {
      config: { creates: true, right: ['create', 'command'], errors: [...errors, 'tooMany'] },
      schema: {
        tags,
        operationId: 'createCommand',
        summary: 'Send a command to a device; it waits until the device is connected',
        description:
          'It is on disk when the answer leaves, and is sent on `_commands`; the device answers on `_commands/replies`. Its payload must fit what the device template declares for its name (`commands`).',
        params: idParams,
        querystring: waitQuery,
        body: commandBody,
        response: one('The command as it is now.'),
      },
    },
    async (request, reply) => {
      const { caller, params, body, query } = request;
      const device = demandLive(findReached(ctx, caller, 'devices', params.id));
      const { id: deviceId, accountId } = device;
      await commands.demandDeclared(caller, device.deviceTemplateId, body);
      const command = await writeAs(ctx, caller, ['devices', deviceId], async (tx) => {
        const made = await commands.add(tx, caller, { deviceId, accountId }, body);
        await noteMade(tx, made.id);
        return made;
      });
      commands.added({ deviceId, accountId });
      return send(reply, query.wait === 1 ? await ended(caller, command) : command);
    },
  );
  readingRoutes(app, ctx);
  app.delete(
    `${path}/:commandId`,
    {
      config: { right: ['delete', 'command'], errors },
      schema: {
        tags,
        operationId: 'cancelCommand',
        summary: 'Cancel a command; a command that has ended does not change',
        description: 'A device that is offline never gets it.',
        params: commandParams,
        response: one('As it is now. A device that has it already may still carry it out.'),
      },
    },
    async ({ caller, params }, reply) => {
      const command = await commandOf(ctx, caller, params);
      if (isOpen(command)) {
        await commands.cancel([command]);
        await ctx.audit.record(registry.query, {
          event: 'commandCancelled',
          outcome: 'success',
          accountId: command.accountId,
          actor: caller,
          target: { kind: 'device', id: command.deviceId },
          details: { commandId: command.id, deviceId: command.deviceId, name: command.name },
        });
      }
      return send(reply, await commandOf(ctx, caller, params));
    },
  );

  /** The command when it has ended, or when the caller may not wait any longer. */
  async function ended(caller: Caller, command: Command): Promise<Command> {
    const others = waiting.get(caller.id) ?? 0;
    if (others >= maxWaiting) return command;
    waiting.set(caller.id, others + 1);
    const latest = await untilEnded(ctx, command).finally(() => {
      const left = (waiting.get(caller.id) ?? 1) - 1;
      if (left === 0) waiting.delete(caller.id);
      else waiting.set(caller.id, left);
    });
    if (currentCaller(ctx, caller)?.kind !== caller.kind) throw new PlatformError('tokenInvalid');
    return latest;
  }
}

function readingRoutes(app: App, ctx: DownlinkContext): void {
  app.get(
    path,
    {
      config: { right: ['read', 'command'], errors: [...errors, 'pageOutside'], sends: ['ignored'] },
      schema: {
        tags,
        operationId: 'listCommands',
        summary: 'List the commands of a device, newest first',
        description: 'Returns one page. Filter by state to find the commands that wait.',
        params: idParams,
        querystring: listQuery,
        response: listResponse('commands', commandShape),
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const device = demandLive(findReached(ctx, caller, 'devices', params.id));
      const ignored = nameIgnored(request, reply, listQuery);
      const { rows, meta } = await listCommands(ctx, caller, device, request.query);
      const results = showSlices(rows, () => showCommand);
      return sendList(reply, 'commands', { results, meta: metaWith(meta, ignored) });
    },
  );
  app.get(
    `${path}/:commandId`,
    {
      config: { right: ['read', 'command'], errors },
      schema: {
        tags,
        operationId: 'getCommand',
        summary: 'Read a command',
        description: 'Shows the state and the reply of the device.',
        params: commandParams,
        response: one('As it is now.'),
      },
    },
    async ({ caller, params }, reply) => send(reply, await commandOf(ctx, caller, params)),
  );
}

function send(reply: FastifyReply, command: Command): FastifyReply {
  return reply.type('application/json; charset=utf-8').send(`{"command":${showCommand(command).text}}`);
}

function untilEnded({ registry, commands }: DownlinkContext, command: Command): Promise<Command> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      unwatch();
      readCommand(registry, command.id).then((latest) => resolve(latest ?? command), reject);
    };
    const look = () => {
      const state = registry.query.selectFrom('commands').select('state').where('id', '=', command.id);
      state
        .executeTakeFirst()
        .then((found) => {
          if (!found || !isOpen(found)) end();
        })
        .catch(reject);
    };
    const unwatch = commands.watchers.addWatcher(command.id, look);
    const timer = setTimeout(end, maxWait);
    look();
  });
}

function readCommand({ query }: Registry, id: string): Promise<Command | undefined> {
  return query.selectFrom('commands').selectAll().where('id', '=', id).executeTakeFirst();
}

/** @throws PlatformError 404/100 for one that is not the device's. */
async function commandOf(
  ctx: DownlinkContext,
  caller: Caller,
  { id, commandId }: Static<typeof commandParams>,
): Promise<Command> {
  const device = demandLive(findReached(ctx, caller, 'devices', id));
  const command = await readCommand(ctx.registry, commandId);
  if (command?.deviceId !== device.id || !ctx.access.historyWindowOf(caller, device).sees(command.created))
    throw new PlatformError('notFound');
  return command;
}

async function listCommands(
  ctx: DownlinkContext,
  caller: Caller,
  device: Row<'devices'>,
  { state, ...query }: Static<typeof listQuery>,
) {
  const { query: db } = ctx.registry;
  const seenBy = (reader: Caller, { id, ...row }: Row<'devices'>) =>
    db
      .selectFrom('commands')
      .where('deviceId', '=', id)
      .where('created', '>', ctx.access.historyWindowOf(reader, row).after);
  const ofDevice = seenBy(caller, device);
  return pageOfTable(ctx, caller, query, {
    matching: state ? ofDevice.where('state', '=', state) : ofDevice,
    key: 'sequence',
    order: ['sequence'],
    long: ['payload', 'result', 'lateReply'],
    read: async (current, some: number[]) => {
      const now = demandLive(findReached(ctx, current, 'devices', device.id));
      return seenBy(current, now).selectAll().where('sequence', 'in', some).execute();
    },
    idOf: ({ sequence }) => sequence,
  });
}
