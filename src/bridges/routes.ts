/** Bridges: where messages of channels with a `streamBridgeDelivery` are sent on to. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Static, Type } from 'typebox';
import { DateText, Id, Nullable, oneOf } from '../../db/registry/records.js';
import type { Caller } from '../access.js';
import type { Audit } from '../audit/index.js';
import type { Context } from '../context.js';
import { commonShape, showCommon } from '../entity/columns.js';
import { currentCaller } from '../entity/current-caller.js';
import { entityRoutes } from '../entity/kind.js';
import { demandPage, type Listing } from '../entity/listing.js';
import { idParams, listResponse, metaWith, nameIgnored, readDate } from '../entity/routes.js';
import { change, demandLive, findReached, insert, stamp, trash, writeAs } from '../entity/verbs.js';
import { invalid, PlatformError } from '../errors.js';
import { sendList } from '../http/answers/streamed-list.js';
import type { App } from '../http/app.js';
import type { Sealing } from '../identity/secrets/sealing.js';
import { makeSecret } from '../identity/secrets/secrets.js';
import { kinds } from './kinds.js';
import { type BridgeRow, secretOwner, urlOwner } from './opening.js';
import { type Form, forms, type Outcome, showMessage } from './target.js';
import { type Asked, checkAsked, readSettings } from './wanted.js';

/** Each gets every message: more of them multiply what is stored. */
const maxPerAccount = 5;

const name = Type.String({ minLength: 1, maxLength: 255 });
const url = Type.String({
  maxLength: 2000,
  description:
    'Where the target is, with TLS: https:// of a webhook, tls:// of NATS, kafkas:// of a Kafka broker, https:// of the Kinesis endpoint, mqtts:// of an MQTT broker. No user and no password. It is stored sealed and never logged.',
});
const secret = Nullable(
  Type.String({
    minLength: 16,
    maxLength: 256,
    pattern: '^[!-~]+$',
    description:
      'The key that signs deliveries. It is stored encrypted and never shown. It is generated if it is left out.',
  }),
);
const form = oneOf(forms);
const settings = Type.Record(Type.String({ maxLength: 64 }), Type.String({ maxLength: 500 }), {
  maxProperties: 10,
  description: 'Further settings of this kind of target: see docs/bridges.md.',
});
const credentials = Type.Record(Type.String({ maxLength: 64 }), Type.String({ minLength: 1, maxLength: 4000 }), {
  maxProperties: 10,
  description: 'How to log in at the target. Stored sealed and never shown.',
});
const createBody = Type.Object({
  accountId: Type.String(),
  name,
  kind: oneOf(kinds),
  url,
  form: Type.Optional({ ...form, description: 'How a message is written into a log; json when left out.' }),
  settings: Type.Optional(settings),
  credentials: Type.Optional(credentials),
  secret: Type.Optional(secret),
});
const updateBody = Type.Object({
  name: Type.Optional(name),
  url: Type.Optional(url),
  form: Type.Optional(form),
  settings: Type.Optional(settings),
  credentials: Type.Optional(credentials),
  secret: Type.Optional({
    ...secret,
    description: 'Null generates a new secret. If it is left out, the secret stays.',
  }),
});
const shape = Type.Object({
  ...commonShape,
  name: Type.String(),
  kind: oneOf(kinds),
  url: Type.String(),
  form,
  settings: Type.Record(Type.String(), Type.String()),
});
const withSecret = Type.Object({
  ...shape.properties,
  secret: Type.Optional(Type.String({ description: 'Only in the answer that created it.' })),
});
const withStatus = Type.Object({
  ...shape.properties,
  status: Type.Object({
    pending: Type.Integer({ description: 'Pending guaranteed messages. 100000 means 100000 or more.' }),
    deadLetters: Type.Integer({ description: 'Dead letters, counted in the same way.' }),
    oldestPending: Nullable({
      ...DateText,
      description: 'When the oldest of the pending messages was put into the queue.',
    }),
    waiting: Type.Integer({ description: 'Best-effort messages that wait in memory.' }),
    dropped: Type.Integer({ description: 'Best-effort messages dropped since the start of the service.' }),
    lastDelivered: Nullable(DateText),
    lastFailure: Nullable(DateText),
    lastFailureReason: Nullable(Type.String()),
  }),
});

const listing: Listing<'bridges'> = {
  table: 'bridges',
  filters: { name: 'exact', kind: 'exact' },
  sorts: ['created', 'lastModified', 'id', 'name'],
  defaultSort: 'created',
};

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
      milliseconds: Type.Integer({ description: 'Until the target answered.' }),
    }),
  },
  { description: 'What became of the message.' },
);

export function bridgeRoutes(app: App, ctx: Context): void {
  const { bridges } = ctx;
  const tags = ['Bridges'];
  entityRoutes(app, ctx, {
    path: '/bridges',
    tag: 'Bridges',
    entity: 'bridge',
    wrapper: 'bridge',
    plural: 'bridges',
    shape,
    listing,
    prepare: () => (row) => show(ctx, row),
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
      answer: 'As it is now.',
      shape: withStatus,
      show: (row) => ({ ...show(ctx, row), status: bridges.status(row.id) }),
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
      summary: 'Delete a bridge for good, with its pending messages, dead letters and secret',
      answer: 'The bridge is deleted.',
      run: (caller, { id }, version) => deleteBridge(ctx, caller, id, version),
    },
  });

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
        summary: 'Read what a bridge could not deliver, newest first',
        params: idParams,
        querystring: deadLetterQuery,
        response: listResponse('deadLetters', deadLetterShape),
      },
    },
    async (request, reply) => {
      const row = demandLive(findReached(ctx, request.caller, 'bridges', request.params.id));
      const ignored = nameIgnored(request, reply, deadLetterQuery);
      const { results, meta } = readDeadLetters(ctx, request.caller, row, request.query);
      return sendList(reply, 'deadLetters', { results, meta: metaWith(meta, ignored) });
    },
  );
  app.post(
    '/bridges/:id/test',
    {
      config: { right: ['update', 'bridge'], errors: ['notFound', 'deleted', 'forbidden'] },
      schema: {
        tags,
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
      config: { right: ['update', 'bridge'], errors: ['notFound', 'deleted', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags,
        summary: 'Deliver the guaranteed messages of a period again',
        description: 'Dead letters, and what has been delivered and is still kept (`SLIPWAY_BRIDGE_KEEP_HOURS`).',
        params: idParams,
        body: replayBody,
        response: { 200: replayShape },
      },
    },
    async (request, reply) => {
      const { caller, params, body } = request;
      const row = demandLive(findReached(ctx, caller, 'bridges', params.id));
      nameIgnored(request, reply, replayBody);
      return { replay: { messages: await replay(ctx, caller, row, body) } };
    },
  );
}

/** @throws PlatformError 400/106 for what the target cannot be opened with, and for one bridge too many. */
async function createBridge(ctx: Context, caller: Caller, body: Static<typeof createBody>) {
  const { accountId, name, kind, form = 'json', settings = {} } = body;
  const secret = kind === 'webhook' ? (body.secret ?? makeSecret()) : undefined;
  const { secret: given, ...others } = body;
  demandOwnSecret(kind, given === null ? others : body);
  const credentials = secret === undefined ? (body.credentials ?? {}) : { secret };
  checkAsked({ kind, url: body.url, form, settings, credentials }, ctx.config.bridges);
  const stamped = stamp(ctx.clock, caller);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const others = tx.selectFrom('bridges').select('id').where('accountId', '=', accountId);
    const live = await others.where('deleted', 'is', null).execute();
    if (live.length >= maxPerAccount) throw invalid('accountId', `has ${maxPerAccount} bridges, which is the maximum`);
    const made = await insert(tx, 'bridges', {
      ...stamped,
      name,
      kind,
      form,
      settings: JSON.stringify(settings),
      sealedUrl: ctx.sealing.seal(urlOwner(stamped.id), body.url),
      sealedSecret: ctx.sealing.seal(secretOwner(stamped.id), secret ?? JSON.stringify(credentials)),
    });
    await recordChange(ctx, tx, caller, made, { change: 'created' });
    return made;
  });
  ctx.bridges.changed(row);
  return { ...show(ctx, row), ...(secret !== undefined && !body.secret && { secret }) };
}

/** @throws PlatformError as change, and 400/106 as createBridge. */
async function updateBridge(
  ctx: Context,
  caller: Caller,
  found: BridgeRow,
  version: number,
  body: Static<typeof updateBody>,
) {
  const { name, url, form, settings } = body;
  const before = demandLive(found);
  const { id } = before;
  const kind = before.kind as Asked['kind'];
  demandOwnSecret(kind, body);
  const made = body.secret === null ? makeSecret() : undefined;
  const secret = body.secret ?? made;
  const sealed = secret ?? (body.credentials && JSON.stringify(body.credentials));
  const asked = {
    kind,
    url: url ?? urlOf(ctx, before),
    form: form ?? (before.form as Form),
    settings: settings ?? readSettings(before),
    credentials: body.credentials ?? {},
  };
  checkAsked(asked, ctx.config.bridges);
  if (sealed === undefined) demandSameServer(ctx, before, asked);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const changed = await change(
      tx,
      'bridges',
      id,
      version,
      { caller, clock: ctx.clock },
      {
        ...(name !== undefined && { name }),
        ...(form !== undefined && { form }),
        ...(settings !== undefined && { settings: JSON.stringify(settings) }),
        ...(url !== undefined && { sealedUrl: ctx.sealing.seal(urlOwner(id), url) }),
        ...(sealed !== undefined && { sealedSecret: ctx.sealing.seal(secretOwner(id), sealed) }),
      },
    );
    await recordChange(ctx, tx, caller, changed, { change: 'updated', secretChanged: sealed !== undefined });
    return changed;
  });
  ctx.bridges.changed(row);
  return { ...show(ctx, row), ...(made !== undefined && { secret: made }) };
}

/**
 * Stored credentials go only where they were meant for: otherwise a caller who may change a bridge could send them to a server
 * of their own. A webhook's secret is never sent.
 * @throws PlatformError 400/106 when `url` or `settings.brokers` names another server and the bridge has credentials.
 */
function demandSameServer(ctx: Context, before: BridgeRow, { kind, url, settings }: Asked): void {
  if (kind === 'webhook' || before.sealedSecret === null) return;
  const [now, then] = [new URL(url), new URL(urlOf(ctx, before))];
  const same = now.protocol === then.protocol && now.host === then.host;
  if (same && settings.brokers === readSettings(before).brokers) return;
  if (ctx.sealing.open(secretOwner(before.id), before.sealedSecret) === '{}') return;
  throw invalid('credentials', 'must be given again when the bridge leads to another server');
}

/** A webhook has its secret, all others have credentials. @throws PlatformError 400/106 for the other one. */
function demandOwnSecret(kind: string, { secret, credentials }: Static<typeof updateBody>): void {
  if (kind === 'webhook' && credentials) throw invalid('credentials', 'is not for webhooks; use secret');
  if (kind !== 'webhook' && secret !== undefined) throw invalid('secret', 'is for webhooks only; use credentials');
}

/** Nothing recovers a bridge, so its secret goes at once. @throws PlatformError as trash. */
async function deleteBridge(ctx: Context, caller: Caller, id: string, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'bridges', id, version, ctx.clock);
    await tx.updateTable('bridges').set({ sealedSecret: null }).where('id', '=', id).execute();
    await recordChange(ctx, tx, caller, trashed, { change: 'deleted' });
    return { ...trashed, sealedSecret: null };
  });
  ctx.bridges.changed(row);
  return show(ctx, row);
}

/** @throws PlatformError 416/109 past the last page; in the middle 401/31 and 403/21 when the caller has lost its right. */
function readDeadLetters(
  ctx: Context,
  caller: Caller,
  row: BridgeRow,
  { page = 1, pageSize = 10 }: Static<typeof deadLetterQuery>,
) {
  const count = ctx.bridges.kept.deadCount(row.id);
  demandPage(page, pageSize, count);
  const results = async function* () {
    for (const slice of ctx.bridges.kept.deadLetters(row, page, pageSize)) {
      const current = currentCaller(ctx, caller);
      if (!current) throw new PlatformError('tokenInvalid');
      ctx.access.demand(current, 'read', 'bridge');
      for (const { reason, since, ...message } of slice)
        yield { ...showMessage(message), reason, died: new Date(since).toISOString() };
      await nextTurn();
    }
  };
  return { results: results(), meta: { count, page, pageSize, sortOrder: 'desc' as const } };
}

/** How many messages are delivered again. @throws PlatformError 400/106 for an invalid time. */
async function replay(ctx: Context, caller: Caller, row: BridgeRow, body: Static<typeof replayBody>): Promise<number> {
  const from = readDate('from', body.from) ?? 0;
  const to = readDate('to', body.to) ?? 0;
  if (to <= from) throw invalid('to', 'must be later than from');
  await writeAs(ctx, caller, undefined, (tx) => recordChange(ctx, tx, caller, row, { change: 'replayed' }));
  return ctx.bridges.replay(row.id, from, to);
}

function recordChange(
  ctx: Context,
  tx: Parameters<Audit['record']>[0],
  caller: Caller,
  row: BridgeRow,
  what: Record<string, string | boolean>,
): Promise<void> {
  const { id, accountId } = row;
  // Only where it leads: the rest of the address may be a password in disguise.
  const details = { ...what, host: new URL(urlOf(ctx, row)).host };
  const target = { kind: 'bridge', id } as const;
  return ctx.audit.record(tx, {
    event: 'bridgeChanged',
    outcome: 'success',
    accountId,
    actor: caller,
    target,
    details,
  });
}

/** Sends one marked message and returns the outcome. It counts against the caller's request rate. */
async function testBridge({ bridges, clock }: Context, row: BridgeRow) {
  const began = clock.now();
  const outcome = await bridges.test(row);
  const delivered = outcome.result === 'accepted';
  return { delivered, reason: delivered ? null : reasonOf(outcome), milliseconds: Math.round(clock.now() - began) };
}

function reasonOf(outcome: Exclude<Outcome, { result: 'accepted' }>): string {
  if (outcome.result !== 'partial') return outcome.reason;
  return outcome.rest?.reason ?? [...outcome.refused.values()][0] ?? 'not accepted';
}

function urlOf({ sealing }: { sealing: Sealing }, { id, sealedUrl }: BridgeRow): string {
  return sealing.open(urlOwner(id), sealedUrl);
}

function show(ctx: Context, row: BridgeRow) {
  return {
    ...showCommon(row),
    name: row.name,
    kind: row.kind as Asked['kind'],
    url: urlOf(ctx, row),
    form: row.form as Form,
    settings: readSettings(row),
  };
}
