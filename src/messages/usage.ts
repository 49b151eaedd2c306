/** GET /usage: what an account stores, and how much of each limit it uses. It shows nothing of other accounts. */

import { type Static, Type } from 'typebox';
import { Nullable } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { limits } from '../core/limits/table.ts';
import { limitStates, limitUse } from '../core/limits/use.ts';
import type { App } from '../http/app.ts';
import type { MessagesContext } from './context.ts';

const limitShape = Type.Object({
  name: Type.String(),
  variable: Type.String({ description: 'The setting that holds it.' }),
  limit: Type.Integer({ description: '0 is no limit.' }),
  used: Nullable(
    Type.Integer({
      description:
        'What the account uses now; the highest where the limit is per template. Null for limits of a single request, entity or connection.',
    }),
  ),
  unit: Type.String(),
  per: Type.String({ description: 'What has this limit each.' }),
});

const answer = Type.Object(
  {
    usage: Type.Object({
      messagesBytes: Type.Integer({ description: 'What these points and log entries take, about.' }),
      diskBytes: Type.Integer({ description: 'All that the account takes on the disk, about.' }),
      diskSharePercent: Nullable(
        Type.Integer({
          description: 'How much of what it may take there it takes, in percent; null below 80. It is refused at 100.',
        }),
      ),
      diskShareBytes: Nullable(Type.Integer({ deprecated: true, description: 'Always null. Use diskSharePercent.' })),
      points: Type.Integer({ description: 'Stored points of the account.' }),
      logs: Type.Integer({ description: 'Stored log entries of the account.' }),
      outbox: Type.Integer({
        description: 'Messages of the account that are kept for its bridges: waiting, delivered, dead.',
      }),
      oldest: Nullable(
        Type.String({ description: "ISO 8601: the account's first point, or when its first log entry came." }),
      ),
      limits: Type.Array(limitShape, {
        maxItems: limits.length,
        description: 'Every limit that concerns the account.',
      }),
    }),
  },
  { description: 'What the account stores, and how much of its limits it uses.' },
);

type UsageContext = MessagesContext & { bridges: { stored(accountId: string): number } };

export function usageRoutes(app: App, ctx: UsageContext): void {
  const { messages, bridges, config, keeping, readers, registry } = ctx;
  const use = limitUse(ctx);

  async function read(caller: Caller): Promise<Static<typeof answer>> {
    const { accountId } = caller;
    const { points, logs, bytes, oldest } = messages.usage(accountId);
    return {
      usage: {
        messagesBytes: bytes,
        diskBytes: Math.round(keeping.share.takenBy(accountId)),
        diskSharePercent: keeping.share.percentOf(accountId),
        // It told every account what is free on the machine.
        diskShareBytes: null,
        points,
        logs,
        outbox: bridges.stored(accountId),
        oldest: oldest === null ? null : new Date(oldest).toISOString(),
        limits: await limitStates(use, config.limits, accountId, readers.readTogether(laneOf(caller), registry.query)),
      },
    };
  }

  app.get(
    '/usage',
    {
      config: { right: ['read', 'account'], errors: ['forbidden'] },
      schema: {
        tags: ['Messages'],
        operationId: 'getUsage',
        summary: 'Read what the account stores, and its limits',
        description: 'Shows for each limit how much of it is used.',
        response: { 200: answer },
      },
    },
    async ({ caller }) => read(caller),
  );
}
