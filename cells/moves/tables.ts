/**
 * The tables of both databases, and what becomes of the rows of an account that moves. A test holds them against the
 * schema. In a condition, `@` is the database of the rows, and "moving" has the ids of the accounts.
 */
import type { RegistryTable } from '../../db/registry/records.ts';

export interface TableRule {
  table: string;
  /** Which rows are the accounts'. */
  where: string;
  /** What the rows are not copied for: they are made by triggers, or are worth nothing elsewhere. They are removed. */
  left?: string;
  /** A column that numbers rows of this file only; rows get a new one. */
  omit?: string;
  /** Columns whose value differs in the other file, as expressions over the row `t`; `:name` is a number of Offsets. */
  to?: Record<string, string>;
}

/** What is added to numbers that only one file knows, so that they are free in the other one. */
export interface Offsets {
  series: number;
  sequence: number;
  session: number;
  message: number;
}

const own = '"accountId" IN "moving"';
const of = (column: string, parent: string, key = 'id') =>
  `"${column}" IN (SELECT "${key}" FROM @"${parent}" WHERE "accountId" IN "moving")`;
const byTriggers = 'kept by triggers';

/** Children before their parents: rows are removed in this order. A table that is not here is a type error. */
const ofRegistry: Record<RegistryTable, Omit<TableRule, 'table'>> = {
  federatedLogins: { where: of('providerId', 'identityProviders'), left: 'a login that is in progress' },
  mailedTokens: { where: of('userId', 'identities') },
  mfaLogins: { where: of('userId', 'identities') },
  mfaMethods: { where: of('userId', 'identities') },
  recoveryCodes: { where: of('userId', 'identities') },
  scimMembers: { where: own },
  scimGroups: { where: own },
  scimUsers: { where: own },
  federatedIdentities: { where: own },
  identityProviders: { where: own },
  sessions: { where: own },
  accessTokens: { where: own },
  idempotentAnswers: { where: own },
  auditRecords: { where: own, omit: 'sequence' },
  verifications: { where: own },
  jobRows: { where: of('jobId', 'jobs') },
  jobs: { where: own },
  commands: { where: own, omit: 'sequence' },
  commandCounts: { where: own, left: byTriggers },
  firmwareTargets: { where: of('rolloutId', 'firmwareRollouts') },
  firmwareDeliveries: { where: own },
  firmwareCounts: { where: of('rolloutId', 'firmwareRollouts'), left: byTriggers },
  firmwareRollouts: { where: own },
  firmwareUploads: { where: own },
  firmwareFiles: { where: own },
  firmwarePackages: { where: own },
  bridges: { where: own },
  refusals: { where: own, omit: 'sequence' },
  publications: { where: of('deviceId', 'devices') },
  associationCodes: { where: own },
  supportRequests: { where: own },
  credentials: { where: own },
  enrollmentRefusals: { where: own, omit: 'sequence' },
  enrollments: { where: own },
  enrollmentGroups: { where: own },
  renewals: { where: own },
  // The removal of certificates writes it.
  certificates: { where: own },
  revokedCertificates: { where: own, omit: 'sequence' },
  revocationListParts: { where: own },
  certificateAuthorities: { where: own },
  devicePresence: {
    where: of('row', 'devices', 'row'),
    to: {
      row: `(SELECT "copied"."row" FROM "source"."devices" AS "given" JOIN "main"."devices" AS "copied" USING ("id")
        WHERE "given"."row" = t."row")`,
    },
  },
  devices: { where: own, omit: 'row' },
  deviceCounts: { where: own, left: byTriggers },
  placedDeviceCounts: { where: own, left: byTriggers },
  firmwareVersionCounts: { where: own, left: byTriggers },
  fieldValues: { where: of('fieldId', 'customFields'), left: byTriggers },
  endUsers: { where: own },
  applications: { where: own },
  fleets: { where: own },
  organizations: { where: own },
  roles: { where: own },
  customFields: { where: own },
  channelTemplates: { where: own },
  deviceTemplates: { where: own },
  endUserTemplates: { where: own },
  organizationTemplates: { where: own },
  accountUsers: { where: own },
  identities: { where: own },
  activity: { where: own },
  kept: { where: own, left: byTriggers },
  directoryMarks: { where: 'false', left: 'of the directory, and of no account' },
  brandings: { where: own },
  accounts: { where: '"id" IN "moving"' },
};

export const registryRules: readonly TableRule[] = Object.entries(ofRegistry).map(([table, rule]) => ({
  table,
  ...rule,
}));

const ofSeries = of('series', 'series');
// Client ids of sessions begin with the id of the account, which has 36 characters.
const ofClient = 'substr("clientId", 1, 36) IN "moving"';
const ofSession = `"session" IN (SELECT "id" FROM @"mqttSessions" WHERE ${ofClient})`;
const category = '(SELECT "target" FROM "temp"."movedCategories" WHERE "source" = t."category")';

/** The rows of these are copied and removed series by series: they are too many for one transaction. */
export const pointRules: readonly TableRule[] = [
  {
    table: 'points',
    where: ofSeries,
    to: { series: 't."series" + :series', sequence: 't."sequence" + :sequence', category },
  },
];

/** Children before their parents. */
export const messageRules: readonly TableRule[] = [
  {
    table: 'latePoints',
    where: ofSeries,
    to: { series: 't."series" + :series', sequence: 't."sequence" + :sequence' },
  },
  {
    table: 'aheadPoints',
    where: ofSeries,
    to: { series: 't."series" + :series', sequence: 't."sequence" + :sequence' },
  },
  { table: 'categoryMarks', where: ofSeries, to: { series: 't."series" + :series', category } },
  {
    table: 'series',
    where: own,
    // Zero says that every late point is listed.
    to: {
      id: 't."id" + :series',
      lateAfter: 'CASE t."lateAfter" WHEN 0 THEN 0 ELSE max(t."lateAfter" + :sequence, 0) END',
    },
  },
  { table: 'logs', where: own, to: { sequence: 't."sequence" + :sequence' } },
  // Rows of before 0.2.0 do not name their account.
  {
    table: 'outbox',
    where: `(${own} OR ("accountId" = '' AND "bridgeId" IN "movingBridges"))`,
    to: { sequence: 't."sequence" + :sequence' },
  },
  { table: 'arrivals', where: own, to: { first: 't."first" + :sequence' } },
  { table: 'messageCounts', where: own },
  { table: 'mqttRetained', where: own },
  { table: 'mqttRetainedUse', where: own, left: byTriggers },
  {
    table: 'mqttMessages',
    where: `"id" IN (SELECT "message" FROM @"mqttQueue" WHERE ${ofSession})`,
    to: { id: 't."id" + :message' },
  },
  {
    table: 'mqttQueue',
    where: ofSession,
    to: { message: 't."message" + :message', session: 't."session" + :session' },
  },
  { table: 'mqttIncoming', where: ofSession, to: { session: 't."session" + :session' } },
  { table: 'mqttSubscriptions', where: ofSession, to: { session: 't."session" + :session' } },
  { table: 'mqttWills', where: ofClient },
  { table: 'mqttSessions', where: ofClient, to: { id: 't."id" + :session' } },
  // Last: triggers change it as the others go.
  { table: 'heldBytes', where: own, left: byTriggers },
];

/** Tables that belong to the file, and not to an account. The text index of the log is made again by the server. */
export const tablesOfTheFile = ['migrations', 'sqlite_sequence', 'categories', 'counters', 'logsText'];
