/** An enrollment group on the wire: its answers, its bodies and its list. */
import { type Static, Type } from 'typebox';
import { enrollmentGroupColumns } from '../../../db/registry/records/enrollment.ts';
import { Nullable, type Row } from '../../../db/registry/records.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  showCommon,
  showing,
  shownProperties,
} from '../../entity/columns.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';

export type GroupRow = Row<'enrollmentGroups'>;

const hook = {
  hookUrl: Type.Optional(
    Nullable(
      Type.String({
        maxLength: 2000,
        description:
          'Asked before anything is made, with https: {"allow": true} lets the exchange go on. No user and no password. Stored sealed.',
      }),
    ),
  ),
  hookSecret: Type.Optional(
    Nullable(
      Type.String({
        minLength: 16,
        maxLength: 256,
        pattern: '^[!-~]+$',
        description:
          'Its bytes sign what the hook is asked. The service makes one if it is left out, or null in a PUT.',
      }),
    ),
  ),
};

export const createBody = Type.Object({
  accountId: Type.String(),
  ...createProperties(enrollmentGroupColumns),
  ...hook,
});
export const updateBody = Type.Object({ ...changeProperties(enrollmentGroupColumns), ...hook });
export type CreateBody = Static<typeof createBody>;
export type UpdateBody = Static<typeof updateBody>;

const shownOnce = (what: string) => Type.Optional(Type.String({ description: `${what} Only this answer has it.` }));
export const groupShape = Type.Object({
  ...commonShape,
  ...shownProperties(enrollmentGroupColumns),
  hookUrl: Nullable(Type.String()),
});
export const withSecrets = Type.Object({
  ...groupShape.properties,
  claimSecret: shownOnce('The password of every device of the group.'),
  groupKey: shownOnce('Each device has base64url(HMAC-SHA256(groupKey, serialNumber)), without padding.'),
  hookSecret: shownOnce('Signs what the hook is asked.'),
});

export const groupListing = listingOf('enrollmentGroups', enrollmentGroupColumns);

const showColumns = showing(enrollmentGroupColumns);

export function showGroup({ sealing }: { sealing: Sealing }, row: GroupRow) {
  return { ...showCommon(row), ...showColumns(row), hookUrl: hookUrlOf(sealing, row) };
}

/** Sealed for these: what is sealed for another column, or another group, does not open. */
export const owners = {
  groupKey: (id: string) => `enrollment/${id}/key`,
  hookUrl: (id: string) => `enrollment/${id}/hook`,
  hookSecret: (id: string) => `enrollment/${id}/hook-secret`,
};

export function hookUrlOf(sealing: Sealing, { id, sealedHookUrl }: GroupRow): string | null {
  return sealedHookUrl === null ? null : sealing.open(owners.hookUrl(id), sealedHookUrl);
}
