/** How long points and log entries are kept: as the channel says, else the account, else the service. */

import { setTimeout as pause } from 'node:timers/promises';
import { type Static, Type } from 'typebox';
import type { MessageStore, Point } from '../../db/messages/store.ts';
import type { Registry } from '../../db/registry/index.ts';
import { maxRetentionDays } from '../../db/registry/records/account.ts';
import { Nullable } from '../../db/registry/records.ts';
import type { Access } from '../core/access.ts';
import type { Caller } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import { writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import type { Audit } from '../operations/audit/index.ts';

const day = 24 * 60 * 60_000;
/** Milliseconds between two steps of removing, so that what arrives has most of the writer's time. */
const stepPause = 20;

type Services = { registry: Registry; clock: Clock; ages: Clock } & { config: Pick<Config, 'messages'> };

/** The settings of accounts, in memory because every message needs them. */
export class Retention {
  readonly #services: Services;
  readonly #daysOf = new Map<string, number>();

  private constructor(services: Services) {
    this.#services = services;
  }

  static async open(services: Services): Promise<Retention> {
    const retention = new Retention(services);
    const rows = await services.registry.query.selectFrom('accounts').select(['id', 'retentionDays']).execute();
    for (const { id, retentionDays } of rows) retention.accountChanged(id, retentionDays);
    return retention;
  }

  /** Told after the commit. */
  accountChanged(accountId: string, retentionDays: number | null): void {
    if (retentionDays === null) this.#daysOf.delete(accountId);
    else this.#daysOf.set(accountId, retentionDays);
  }

  /** Days; 0 is for ever. `channelDays` is the channel's own, null for none; log entries have none. */
  days(accountId: string, channelDays: number | null): number {
    return channelDays ?? this.#daysOf.get(accountId) ?? this.#services.config.messages.retentionDays;
  }

  /** Milliseconds since 1970 before which nothing is kept; undefined when everything is. */
  cutoff(accountId: string, channelDays: number | null): number | undefined {
    const days = this.days(accountId, channelDays);
    return days === 0 ? undefined : this.#services.ages.now() - days * day;
  }

  /** The points that are young enough to be kept, and why the others are not. Those more than a day ahead say when they came. */
  split(accountId: string, channelDays: number | null, points: Point[]): { kept: Point[]; reason?: string } {
    const now = this.#services.clock.now();
    for (const point of points) if (point.time > now + day) point.arrived = now;
    const cutoff = this.cutoff(accountId, channelDays);
    if (cutoff === undefined || points.every(({ time }) => time >= cutoff)) return { kept: points };
    const kept = points.filter(({ time }) => time >= cutoff);
    const late = points.length - kept.length;
    const days = this.days(accountId, channelDays);
    return { kept, reason: `${late} of ${points.length} points are older than the ${days} days that are kept.` };
  }
}

/** Removes what has expired, now; `isStopped` is asked between the steps. */
export async function expireMessages(
  { registry, messages, retention }: { registry: Registry; messages: MessageStore; retention: Retention },
  isStopped: () => boolean = () => false,
): Promise<void> {
  const channels = await registry.query
    .selectFrom('channelTemplates')
    .select(['id', 'accountId', 'retentionDays'])
    .where('persistenceType', '=', 'timeSeries')
    .execute();
  const accounts = await registry.query.selectFrom('accounts').select('id').execute();
  const due = [
    ...channels.map(({ id: channelTemplateId, accountId, retentionDays }) => ({
      before: retention.cutoff(accountId, retentionDays),
      channelTemplateId,
    })),
    ...accounts.map(({ id: logsOf }) => ({ before: retention.cutoff(logsOf, null), logsOf })),
  ];
  for (const { before, ...what } of due) {
    if (before === undefined) continue;
    while (!isStopped() && (await messages.expireSome({ before, ...what }))) await pause(stepPause);
  }
}

const days = Nullable(
  Type.Integer({ minimum: 0, maximum: maxRetentionDays, description: '0 is for ever; null is the default.' }),
);
const body = Type.Object({ retentionDays: days });
const answer = Type.Object(
  {
    retention: Type.Object({
      retentionDays: days,
      default: Type.Integer({ description: 'Days, of the service: SLIPWAY_RETENTION_DAYS. 0 is for ever.' }),
    }),
  },
  {
    description: 'How long points and log entries of the account are kept; a channel may say otherwise for its points.',
  },
);

type RetentionServices = { config: Config; access: Access; registry: Registry; retention: Retention; audit: Audit };

/** GET and PUT /retention: the account's own. */
export function retentionRoutes(app: App, ctx: RetentionServices): void {
  const { registry, retention } = ctx;
  const tags = ['Messages'];

  async function read(caller: Caller): Promise<Static<typeof answer>> {
    const accounts = registry.query.selectFrom('accounts').select('retentionDays');
    const { retentionDays } = await accounts.where('id', '=', caller.accountId).executeTakeFirstOrThrow();
    return { retention: { retentionDays, default: ctx.config.messages.retentionDays } };
  }

  async function update(caller: Caller, { retentionDays }: Static<typeof body>): Promise<Static<typeof answer>> {
    const { accountId } = caller;
    await writeAs(ctx, caller, undefined, async (tx) => {
      await tx.updateTable('accounts').set({ retentionDays }).where('id', '=', accountId).execute();
      // A shorter one removes what was kept, for good.
      const target = { kind: 'account', id: accountId } as const;
      const changed = { event: 'retentionChanged', outcome: 'success', accountId, actor: caller, target } as const;
      await ctx.audit.record(tx, { ...changed, details: { retentionDays } });
    });
    retention.accountChanged(caller.accountId, retentionDays);
    return read(caller);
  }

  app.get(
    '/retention',
    {
      config: { right: ['read', 'account'], errors: ['forbidden'] },
      schema: {
        tags,
        operationId: 'getRetention',
        summary: 'Read how long messages are kept',
        description: 'Older points and log entries are removed every hour.',
        response: { 200: answer },
      },
    },
    ({ caller }) => read(caller),
  );
  app.put(
    '/retention',
    {
      config: { whenFull: true, right: ['update', 'account'], errors: ['forbidden'] },
      schema: {
        tags,
        operationId: 'updateRetention',
        summary: 'Change how long messages are kept',
        description:
          'Messages that are too old by the new times are removed within the next hours. This cannot be undone.',
        body,
        response: { 200: answer },
      },
    },
    (request) => update(request.caller, request.body),
  );
}
