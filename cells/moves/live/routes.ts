/** What `slipway account move` asks of the two cells. These endpoints give away whole accounts, so they have a token of their own. */

import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { version } from '../../../db/files/version.ts';
import type { WholeOutboxRow } from '../../../db/messages/outbox/rows.ts';
import type { MqttState } from '../../../db/messages/sessions/changes.ts';
import { PlatformError } from '../../../src/core/errors.ts';
import { slotOf } from '../../../src/core/ids.ts';
import type { App } from '../../../src/http/app.ts';
import { demandToken } from '../../../src/http/guards/operator-token.ts';
import type { CellsContext } from '../../context.ts';
import type { HashedRange, Page, PagePlace, PageRange } from './pages.ts';
import { accountsOfSlot } from './removal.ts';
import { type MessagesChunk, MoveSource, proofOf } from './source.ts';
import { MoveTarget } from './target.ts';

/** Bytes of a body: many sessions come at once. */
const maxBody = 512 * 1024 * 1024;

const text = Type.Optional(Type.String({ maxLength: 2048 }));
const querystring = Type.Object({
  move: text,
  accountId: text,
  place: text,
  after: text,
  name: text,
  whole: text,
  from: text,
  last: text,
});

/** They are closed until SLIPWAY_MOVE_TOKEN is set. */
export function movingRoutes(app: App, ctx: CellsContext): void {
  const source = new MoveSource(ctx);
  const target = new MoveTarget(ctx);
  void app.register(async (within) => {
    const scope = within as App;
    scope.addHook('onRequest', async (request, reply) => {
      const { moveToken } = ctx.config;
      if (moveToken === undefined)
        throw new PlatformError('notFound', { message: 'This endpoint needs SLIPWAY_MOVE_TOKEN to be set.' });
      demandToken(request, moveToken);
      reply.header('cache-control', 'no-store');
    });
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_, body, done) => done(null, body));
    const route = { config: { whilePaused: true }, schema: { hide: true, querystring }, bodyLimit: maxBody } as const;
    const get = (path: string, answer: (query: Query, request: FastifyRequest) => unknown) =>
      scope.get(`/cell/move${path}`, route, async (request) => answer(read(request.query), request));
    const post = (path: string, work: (query: Query, body: unknown) => unknown) =>
      scope.post(`/cell/move${path}`, route, async (request) => {
        const { body } = request;
        return (await work(read(request.query), Buffer.isBuffer(body) ? parsed(path, body) : body)) ?? {};
      });

    get('', async ({ accountId }) => {
      const record = ctx.gate.recordOf(accountId);
      const isHere = (await accountsOfSlot(ctx.registry, slotOf(accountId))).includes(accountId);
      const state = record && record.state !== 'here' ? record.state : isHere ? 'here' : 'none';
      return {
        version,
        topicRoot: ctx.config.topicRoot,
        state,
        move: record?.move ?? null,
        from: record?.from ?? null,
        to: record?.to ?? null,
      };
    });
    // The cell that it leaves.
    post('/leave', async ({ accountId, move }, body) => ({
      ...(await source.beginCopy(accountId, move, body as { from: string; to: string })),
      proof: proofOf(ctx, move),
    }));
    get('/pages', ({ move, place }) => source.pages(move, place === '' ? null : (JSON.parse(place) as PagePlace)));
    get('/page', ({ move, place }) => ({ pages: [source.page(move, JSON.parse(place) as PageRange)] }));
    get('/touched', ({ move }) => source.touched(move));
    get('/counts', ({ move }) => source.counts(move));
    get('/messages', ({ move }) => source.messages(move));
    get('/outbox', ({ move, after }) => withPayloads({ rows: source.outbox(move, Number(after)) }));
    get('/sessions', ({ move }) => withPayloads(source.sessions(move)));
    get('/files', async ({ move }) => ({ files: await source.files(move) }));
    get('/file', ({ move, name, whole, from }) => source.file(move, name, whole === 'true', Number(from)));
    post('/pause', ({ move }) => source.pause(move));
    post('/resume', ({ accountId }) => source.resume(accountId));
    post('/release', ({ move }) => source.releaseMove(move));
    post('/clear', ({ move }) => source.removeMoved(move));
    // The cell that gets it.
    post('/come', (_, body) => target.beginArrival(body as Parameters<MoveTarget['beginArrival']>[0]));
    post('/differing', async ({ move }, body) => ({
      ranges: await target.differing(move, (body as { pages: HashedRange[] }).pages),
    }));
    post('/rows', ({ move }, body) => target.rows(move, (body as { pages: Page[] }).pages));
    post('/touched', ({ move }, body) => target.touched(move, (body as { pages: Page[] }).pages));
    post('/messages', ({ move }, body) => target.messages(move, body as MessagesChunk));
    post('/outbox', ({ move }, body) => target.outbox(move, (body as { rows: WholeOutboxRow[] }).rows));
    post('/sessions', ({ move }, body) => target.sessions(move, body as MqttState));
    get('/has', ({ name, whole }) => ({ has: target.has(name, whole === 'true') }));
    post('/file', ({ move, name, whole, from, last }, body) =>
      target.file(
        move,
        { name, isWhole: whole === 'true', from: Number(from), isLast: last === 'true' },
        Buffer.isBuffer(body) ? body : Buffer.alloc(0),
      ),
    );
    post('/activate', ({ move }, body) => target.activate(move, body as Parameters<MoveTarget['activate']>[1]));
    post('/drop', ({ accountId }) => target.dropAccount(accountId));
  });
}

type Query = Record<keyof typeof querystring.properties, string>;

function read(query: Partial<Query>): Query {
  const none = { move: '', accountId: '', place: '', after: '0', name: '', whole: '', from: '0', last: '' };
  return { ...none, ...query };
}

/** Payloads are bytes; JSON has them as base64. */
function withPayloads(value: object): object {
  return JSON.parse(
    JSON.stringify(value, (_, one) =>
      one?.type === 'Buffer' ? { base64: Buffer.from(one.data).toString('base64') } : one,
    ),
  );
}

/** Only two have payloads: to look for them everywhere takes ten times as long. */
function parsed(path: string, body: Buffer): unknown {
  if (path === '/file') return body;
  return JSON.parse(body.toString(), path === '/outbox' || path === '/sessions' ? revive : undefined);
}

function revive(_: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || !('base64' in value)) return value;
  return Buffer.from(String(value.base64), 'base64');
}
