/** GET /usage (decisions 7): what the messages of an account take, and what is left. */

import { type Static, Type } from 'typebox';
import { Nullable } from '../../db/registry/records.js';
import type { Caller } from '../access.js';
import type { Context } from '../context.js';
import type { App } from '../http/app.js';

const answer = Type.Object(
  {
    usage: Type.Object({
      messagesBytes: Type.Integer({
        description: 'Of the whole service: what SLIPWAY_MESSAGES_MAX_BYTES bounds, the messages of all accounts.',
      }),
      points: Type.Integer({ description: 'Stored points of the account.' }),
      logs: Type.Integer({ description: 'Stored log entries of the account.' }),
      outbox: Type.Integer({
        description: 'Messages of the account that are kept for its bridges: waiting, delivered, dead.',
      }),
      diskFreeBytes: Nullable(
        Type.Integer({ description: 'Of the whole service; null when the system does not say.' }),
      ),
      oldest: Nullable(
        Type.String({ description: "ISO 8601: the account's first point, or when its first log entry came." }),
      ),
    }),
  },
  { description: 'What is stored.' },
);

export function usageRoutes(app: App, ctx: Context): void {
  const { access, messages, keeping, bridges } = ctx;

  function read(caller: Caller): Static<typeof answer> {
    access.demand(caller, 'read', 'account');
    const { points, logs, oldest } = messages.usage(caller.accountId);
    return {
      usage: {
        messagesBytes: messages.size,
        points,
        logs,
        outbox: bridges.stored(caller.accountId),
        diskFreeBytes: keeping.diskFree,
        oldest: oldest === null ? null : new Date(oldest).toISOString(),
      },
    };
  }

  app.get(
    '/usage',
    {
      config: { right: ['read', 'account'], errors: ['forbidden'] },
      schema: { tags: ['Messages'], summary: 'Read what is stored and what is left', response: { 200: answer } },
    },
    async ({ caller }) => read(caller),
  );
}
