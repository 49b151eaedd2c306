/** The devices that a group has made, by the serial number that enrolled. */
import { type Static, Type } from 'typebox';
import { DateText, Id, Nullable, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { normalizeSerialNumber } from '../../core/formats/serial-numbers.ts';
import { pageOfTable } from '../../entity/list.ts';
import { idParams, listResponse } from '../../entity/routes.ts';
import { showSlices } from '../../entity/row-slices.ts';
import { demandLive, findReached } from '../../entity/verbs.ts';
import { sendList } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import type { EnrollmentContext } from '../context.ts';

const query = Type.Object({
  serialNumber: Type.Optional(Type.String({ maxLength: 255, description: 'Exactly this one.' })),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});
const shape = Type.Object({
  deviceId: Id,
  serialNumber: Type.String({ description: 'That it has enrolled with.' }),
  enrolled: DateText,
  connected: Nullable(Type.String({ format: 'date-time', description: 'Its first connection.' })),
  allowedUntil: Nullable(
    Type.String({
      format: 'date-time',
      description: 'So long it may enroll once more, with the permission of an admin.',
    }),
  ),
});

/** GET /enrollment-groups/{id}/devices. */
export function enrolledDeviceRoutes(app: App, ctx: EnrollmentContext): void {
  app.get(
    '/enrollment-groups/:id/devices',
    {
      config: {
        right: ['read', 'enrollmentGroup'],
        errors: ['notFound', 'deleted', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Enrollment'],
        operationId: 'listEnrolledDevices',
        summary: 'List the devices that a group has made, by serial number',
        description: 'Also those in the trash, until they are purged.',
        params: idParams,
        querystring: query,
        response: listResponse('devices', shape),
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const ignored = nameIgnored(request, reply, query);
      const { id } = demandLive(findReached(ctx, caller, 'enrollmentGroups', params.id));
      const { rows, meta } = await listDevices(ctx, caller, id, request.query);
      const results = showSlices(rows, () => show);
      return sendList(reply, 'devices', { results, meta: metaWith(meta, ignored) });
    },
  );
}

function listDevices(
  ctx: EnrollmentContext,
  caller: Caller,
  groupId: string,
  { serialNumber, ...asked }: Static<typeof query>,
) {
  const made = ctx.registry.query.selectFrom('enrollments').where('groupId', '=', groupId);
  const normal = serialNumber === undefined ? undefined : normalizeSerialNumber(serialNumber);
  return pageOfTable(
    ctx,
    caller,
    { ...asked, sortOrder: 'asc' },
    {
      matching: normal === undefined ? made : made.where('serialNumber', '=', normal),
      key: 'deviceId',
      order: ['serialNumber'],
      long: ['serialNumber'],
      read: async (current, some: string[]) => {
        demandLive(findReached(ctx, current, 'enrollmentGroups', groupId));
        return made.selectAll().where('deviceId', 'in', some).execute();
      },
      idOf: ({ deviceId }) => deviceId,
    },
  );
}

function show({ deviceId, serialNumber, enrolled, connected, allowedUntil }: Row<'enrollments'>) {
  return { deviceId, serialNumber, enrolled, connected, allowedUntil };
}
