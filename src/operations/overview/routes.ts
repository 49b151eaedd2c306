/** GET /overview: what one sees first after signing in. */
import { Type } from 'typebox';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import { limitUse } from '../../core/limits/use.ts';
import { JsonText, sendItems, streamed } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { nameIgnored } from '../../http/ignored-names.ts';
import { attentionOf } from './attention.ts';
import type { OverviewContext } from './context.ts';
import { deviceCountsOf, firmwareCountsOf } from './counts.ts';
import { historyOf, ownRefusalsOf } from './history.ts';
import { requestOf, withRight } from './reading.ts';
import { recentOf } from './recent.ts';
import { maxHours, type Overview, overviewShape } from './shape.ts';

/** The history is JSON already; an end-user has none. */
type Found = Omit<Overview, 'history'> & { items: string[] | undefined };

const query = Type.Object({
  accountId: Type.String({ description: 'The account id. The id of another account answers 404.' }),
  hours: Type.Optional(
    Type.Integer({ minimum: 1, maximum: maxHours, default: 24, description: 'Of the history, up to now.' }),
  ),
});

export function overviewRoutes(app: App, ctx: OverviewContext): void {
  const use = limitUse(ctx);

  async function read(caller: Caller, hours: number): Promise<Found> {
    const request = requestOf(ctx, caller);
    const isAll = isAccountWide(caller);
    const counts = deviceCountsOf(request);
    const history = isAll ? historyOf(request, hours, counts) : Promise.resolve(undefined);
    // Each part needs the permission of what it tells, as the list that it comes from does.
    const ofDevices = withRight(request, 'read', 'device');
    const reached = isAll || !ofDevices ? counts : deviceCountsOf(ofDevices);
    const [found, seen, byFirmware, ofTime, own, attention, recent] = await Promise.all([
      counts,
      ofDevices && reached,
      ofDevices && firmwareCountsOf(ofDevices, reached),
      history,
      isAll ? undefined : ownRefusalsOf(request),
      attentionOf(request, use, history),
      ofDevices ? recentOf(ofDevices) : [],
    ]);
    const { causes: _, items, messages, refusals = own } = ofTime ?? {};
    const byProduct = seen?.byProduct ?? [];
    const time = new Date(ctx.clock.now()).toISOString();
    const told = { ...(byFirmware && { byFirmware }), ...(messages && { messages }), ...(refusals && { refusals }) };
    return { time, ...found, byProduct, ...told, attention, recent, items };
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
          'At most five seconds late. Each part needs the permission to read what it tells: products, firmware, refusals, what happened and which devices are lost that of devices; counts of devices and messages come with this operation. End-users see the devices of their organizations; what is kept for a whole account alone is left out for them.',
        querystring: query,
        response: { 200: streamed(Type.Object({ overview: overviewShape }, { description: 'As it is now.' })) },
      },
    },
    async (request, reply) => {
      const { caller, query: asked } = request;
      ctx.access.demandAccount(caller, asked.accountId);
      nameIgnored(request, reply, query);
      const { items, ...overview } = await read(caller, asked.hours ?? 24);
      const before = `{"overview":${JSON.stringify(overview).slice(0, -1)}`;
      return sendItems(
        reply,
        items ? `${before},"history":[` : before,
        async function* () {
          for (const item of items ?? []) yield new JsonText(item);
        },
        items ? ']}}' : '}}',
      );
    },
  );
}
