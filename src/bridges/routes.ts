/** Bridges: where messages of channels with a `streamBridgeDelivery` are sent on to. */

import { type Static, Type } from 'typebox';
import { DateText, Id, Nullable } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { invalid } from '../core/errors.ts';
import { messageProperties } from '../core/formats/message-properties.ts';
import { entityRoutes } from '../entity/kind.ts';
import { demandPage } from '../entity/list.ts';
import { idParams, listResponse, readDate } from '../entity/routes.ts';
import { readSlices, showSlices } from '../entity/row-slices.ts';
import { demandLive, findReached, writeAs } from '../entity/verbs.ts';
import { sendList } from '../http/answers/streamed-list.ts';
import type { App } from '../http/app.ts';
import { metaWith, nameIgnored } from '../http/ignored-names.ts';
import { bridgeListing, bridgeShape, createBody, showBridge, updateBody, withSecret, withStatus } from './bridge.ts';
import { createBridge, deleteBridge, maxPerAccount, recordChange, updateBridge } from './changes.ts';
import type { BridgesContext } from './context.ts';
import type { KeptMessages } from './kept.ts';
import type { BridgeRow } from './opening.ts';
import { showMessage } from './target.ts';

const deadLetterQuery = Type.Object({
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: 10 })),
});
const deadLetterShape = Type.Object({
  id: Id,
  topic: Type.String(),
  accountId: Id,
  deviceId: Id,
  organizationId: Nullable(Id),
  deviceTemplateId: Id,
  channel: Type.String(),
  qos: Type.Integer(),
  time: DateText,
  payloadBase64: Type.String(),
  properties: Type.Optional(messageProperties),
  reason: Nullable(Type.String({ description: 'Of the last attempt.' })),
  died: DateText,
});
const replayBody = Type.Object({
  from: Type.String({ description: 'ISO 8601, of the acceptance of messages, inclusive.' }),
  to: Type.String({ description: 'ISO 8601, exclusive.' }),
});
const replayShape = Type.Object(
  {
    replay: Type.Object({
      messages: Type.Integer({ description: 'The number of messages that are delivered again.' }),
    }),
  },
  { description: 'They are pending when this answer is sent.' },
);

const testShape = Type.Object(
  {
    test: Type.Object({
      delivered: Type.Boolean({ description: 'Whether the target has accepted the message.' }),
      reason: Nullable(Type.String({ description: 'Why not.' })),
      note: Nullable(Type.String({ description: 'What the target cannot say of messages.' })),
      milliseconds: Type.Integer({ description: 'Until the target answered.' }),
    }),
  },
  { description: 'What became of the message.' },
);

const tags = ['Bridges'];

export function bridgeRoutes(app: App, ctx: BridgesContext): void {
  const { bridges } = ctx;
  entityRoutes(app, ctx, {
    path: '/bridges',
    tag: 'Bridges',
    entity: 'bridge',
    wrapper: 'bridge',
    plural: 'bridges',
    shape: bridgeShape,
    listing: bridgeListing,
    prepare: () => (row) => showBridge(ctx, row),
    create: {
      summary: 'Create a bridge',
      description: `An account has ${maxPerAccount} at most; each gets every message of channels with a streamBridgeDelivery.`,
      answer: 'The new bridge. If the secret was generated, only this answer has it.',
      shape: withSecret,
      errors: ['notUnique'],
      body: createBody,
      run: (caller, body) => createBridge(ctx, caller, body),
    },
    read: {
      summary: 'Read a bridge and its state',
      description: 'The status shows what waits, what failed and why.',
      answer: 'As it is now.',
      shape: withStatus,
      show: (_, row) => ({ ...showBridge(ctx, row), status: bridges.status(row.id) }),
    },
    list: { summary: 'List bridges' },
    update: {
      summary: 'Update a bridge; pending messages go to the new address at once',
      answer: 'With its new version, and its new secret when one was made.',
      shape: withSecret,
      errors: ['notUnique'],
      body: updateBody,
      run: (caller, before, version, body) => updateBridge(ctx, caller, before, version, body),
    },
    remove: {
      summary: 'Delete a bridge permanently, with its pending messages, dead letters and secret',
      answer: 'The bridge is deleted.',
      run: (caller, { id }, version) => deleteBridge(ctx, caller, id, version),
    },
  });
  deadLetterRoutes(app, ctx);
}

function deadLetterRoutes(app: App, ctx: BridgesContext): void {
  app.get(
    '/bridges/:id/dead-letters',
    {
      config: {
        right: ['read', 'bridge'],
        errors: ['notFound', 'deleted', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags,
        operationId: 'listDeadLetters',
        summary: 'Read what a bridge could not deliver, newest first',
        description: 'Messages that the target refused, or did not accept in time. replayBridge sends them again.',
        params: idParams,
        querystring: deadLetterQuery,
        response: listResponse('deadLetters', deadLetterShape),
      },
    },
    async (request, reply) => {
      const row = demandLive(findReached(ctx, request.caller, 'bridges', request.params.id));
      const ignored = nameIgnored(request, reply, deadLetterQuery);
      const { rows, meta } = readDeadLetters(ctx, request.caller, row, request.query);
      const results = showSlices(rows, () => showDeadLetter);
      return sendList(reply, 'deadLetters', { results, meta: metaWith(meta, ignored) });
    },
  );
  app.post(
    '/bridges/:id/test',
    {
      config: { right: ['update', 'bridge'], errors: ['notFound', 'deleted', 'forbidden'] },
      schema: {
        tags,
        operationId: 'testBridge',
        summary: 'Send one marked message to the target of a bridge',
        description:
          'The message belongs to no device, and has `test: true` in JSON and the header `slipway-test` in raw form.',
        params: idParams,
        response: { 200: testShape },
      },
    },
    async ({ caller, params }) => {
      return { test: await testBridge(ctx, demandLive(findReached(ctx, caller, 'bridges', params.id))) };
    },
  );
  app.post(
    '/bridges/:id/replay',
    {
      config: {
        creates: true,
        right: ['update', 'bridge'],
        errors: ['notFound', 'deleted', 'forbidden'],
      },
      schema: {
        tags,
        operationId: 'replayBridge',
        summary: 'Deliver the guaranteed messages of a period again',
        description: 'Dead letters, and what has been delivered and is still kept (`SLIPWAY_BRIDGE_KEEP_HOURS`).',
        params: idParams,
        body: replayBody,
        response: { 200: replayShape },
      },
    },
    async (request) => {
      const { caller, params, body } = request;
      const row = demandLive(findReached(ctx, caller, 'bridges', params.id));
      return { replay: { messages: await replay(ctx, caller, row, body) } };
    },
  );
}

/** @throws PlatformError 416/109 past the last page; in the middle 401/31 and 403/21 when the caller has lost its right. */
function readDeadLetters(
  ctx: BridgesContext,
  caller: Caller,
  row: BridgeRow,
  { page = 1, pageSize = 10 }: Static<typeof deadLetterQuery>,
) {
  const { kept } = ctx.bridges;
  const count = kept.deadCount(row.id);
  demandPage(page, pageSize, count);
  const offset = (page - 1) * pageSize;
  const rows = readSlices(ctx, caller, {
    count: Math.min(pageSize, count - offset),
    find: async () => kept.deadPlaces(row.id, pageSize, offset),
    read: async (current, sequences: number[]) => {
      demandLive(findReached(ctx, current, 'bridges', row.id));
      return kept.deadLetters(row, sequences);
    },
    idOf: ({ sequence }) => sequence,
  });
  return { rows, meta: { count, page, pageSize, sortOrder: 'desc' as const } };
}

function showDeadLetter({ sequence: _, reason, since, ...message }: ReturnType<KeptMessages['deadLetters']>[number]) {
  return { ...showMessage(message), reason, died: new Date(since).toISOString() };
}

/** How many messages are delivered again. @throws PlatformError 400/106 for an invalid time. */
async function replay(
  ctx: BridgesContext,
  caller: Caller,
  row: BridgeRow,
  body: Static<typeof replayBody>,
): Promise<number> {
  const from = readDate('from', body.from) ?? 0;
  const to = readDate('to', body.to) ?? 0;
  if (to <= from) throw invalid('to', 'must be later than from');
  await writeAs(ctx, caller, undefined, (tx) => recordChange(ctx, tx, caller, row, { change: 'replayed' }));
  return ctx.bridges.replay(row.id, from, to);
}

/** Sends one marked message and returns the outcome. It counts against the caller's request rate. */
async function testBridge({ bridges, clock }: BridgesContext, row: BridgeRow) {
  const began = clock.now();
  const { fate, note = null } = await bridges.test(row);
  const reason = fate.result === 'accepted' ? null : fate.reason;
  return { delivered: reason === null, reason, note, milliseconds: Math.round(clock.now() - began) };
}
