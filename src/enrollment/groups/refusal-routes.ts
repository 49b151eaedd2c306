/** Reading what groups have refused; `refusals.ts` notes it. */
import { type Static, Type } from 'typebox';
import { DateText, Nullable, type Row } from '../../../db/registry/records.ts';
import { PlatformError } from '../../core/errors.ts';
import { idParams, listResponse } from '../../entity/routes.ts';
import { oneSlice, showSlices } from '../../entity/row-slices.ts';
import { demandLive, findReached } from '../../entity/verbs.ts';
import { sendList } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import type { EnrollmentContext } from '../context.ts';
import { keptOfGroup, keptUnproven } from './refusals.ts';

const query = Type.Object({
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});
const shape = Type.Object({
  time: DateText,
  serialNumber: Nullable(Type.String({ description: 'As it was sent; null where none was.' })),
  address: Nullable(Type.String()),
  reason: Type.String(),
  proven: Type.Boolean({ description: 'Whether the asker had the proof of the group.' }),
});

/** GET /enrollment-groups/{id}/refusals. */
export function enrollmentRefusalRoutes(app: App, ctx: EnrollmentContext): void {
  app.get(
    '/enrollment-groups/:id/refusals',
    {
      config: {
        right: ['read', 'enrollmentGroup'],
        errors: ['notFound', 'deleted', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Enrollment'],
        operationId: 'listEnrollmentRefusals',
        summary: `Read the last ${keptOfGroup} refused enrollments of a group, newest first, with their reasons`,
        description: `Of these, ${keptUnproven} at most are of strangers without the proof of the group.`,
        params: idParams,
        querystring: query,
        response: listResponse('refusals', shape),
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const ignored = nameIgnored(request, reply, query);
      const group = demandLive(findReached(ctx, caller, 'enrollmentGroups', params.id));
      await ctx.enrollment.refusals.written(group.accountId, group.id);
      const { rows, meta } = await readPage(ctx, group.id, request.query);
      const results = showSlices(oneSlice(caller, rows), () => show);
      return sendList(reply, 'refusals', { results, meta: metaWith(meta, ignored) });
    },
  );
}

/** @throws PlatformError 416/109 past the last page. */
async function readPage(
  { registry }: EnrollmentContext,
  groupId: string,
  { page = 1, pageSize = 10 }: Static<typeof query>,
) {
  const stored = registry.query.selectFrom('enrollmentRefusals').selectAll().where('groupId', '=', groupId);
  const rows = await stored.orderBy('sequence', 'desc').execute();
  const from = (page - 1) * pageSize;
  if (page > 1 && from >= rows.length) throw new PlatformError('pageOutside');
  const meta = { count: rows.length, page, pageSize, sortOrder: 'desc' as const };
  return { rows: rows.slice(from, from + pageSize), meta };
}

function show({ time, serialNumber, address, reason, proven }: Omit<Row<'enrollmentRefusals'>, 'sequence'>) {
  return { time, serialNumber, address, reason, proven: proven === 1 };
}
