/** GET /overview: what one sees first after signing in. */
import { Type } from 'typebox';
import { type Caller, isAccountWide } from '../access.ts';
import type { App } from '../http/app.ts';
import { nameIgnored } from '../http/ignored-names.ts';
import { limitUse } from '../limits/use.ts';
import { attentionOf } from './attention.ts';
import type { OverviewContext } from './context.ts';
import { deviceCountsOf, firmwareCountsOf } from './counts.ts';
import { historyOf } from './history.ts';
import { recentOf } from './recent.ts';
import { maxHours, type Overview, overviewShape } from './shape.ts';

const query = Type.Object({
  accountId: Type.String({ description: 'The account id. The id of another account answers 404.' }),
  hours: Type.Optional(
    Type.Integer({ minimum: 1, maximum: maxHours, default: 24, description: 'Of the history, up to now.' }),
  ),
});

export function overviewRoutes(app: App, ctx: OverviewContext): void {
  const use = limitUse(ctx);

  async function read(caller: Caller, hours: number): Promise<Overview> {
    const counts = await deviceCountsOf(ctx, caller);
    const time = new Date(ctx.clock.now()).toISOString();
    const isAll = isAccountWide(caller);
    const [byFirmware, history, recent] = await Promise.all([
      isAll ? firmwareCountsOf(ctx, caller, counts.devices) : undefined,
      isAll ? historyOf(ctx, caller, hours, counts.online) : undefined,
      recentOf(ctx, caller),
    ]);
    const { causes, ...activity } = history ?? {};
    const attention = await attentionOf(ctx, caller, use, causes);
    return { time, ...counts, ...(byFirmware && { byFirmware }), ...activity, attention, recent };
  }

  app.get(
    '/overview',
    {
      config: { right: ['subscribe', 'device'], errors: ['notFound', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags: ['Devices'],
        operationId: 'getOverview',
        summary: 'Read how the account is: devices, messages, what needs attention, what happened lately',
        description:
          'At most five seconds late. End-users see the devices of their organizations; what is kept for a whole account alone is left out for them.',
        querystring: query,
        response: { 200: Type.Object({ overview: overviewShape }, { description: 'As it is now.' }) },
      },
    },
    async (request, reply) => {
      const { caller, query: asked } = request;
      ctx.access.demandAccount(caller, asked.accountId);
      nameIgnored(request, reply, query);
      return { overview: await read(caller, asked.hours ?? 24) };
    },
  );
}
