/**
 * The tables of both databases, and what becomes of the rows of an account that moves. A test holds them against the
 * schema. In a condition, `@` is the database of the rows, and "moving" has the ids of the accounts.
 */

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

/** Children before their parents: rows are removed in this order. */
export const registryRules: readonly TableRule[] = [
  { table: 'federatedLogins', where: of('providerId', 'identityProviders'), left: 'a login that is in progress' },
  { table: 'mailedTokens', where: of('userId', 'identities') },
  { table: 'mfaLogins', where: of('userId', 'identities') },
  { table: 'mfaMethods', where: of('userId', 'identities') },
  { table: 'recoveryCodes', where: of('userId', 'identities') },
  { table: 'federatedIdentities', where: own },
  { table: 'identityProviders', where: own },
  { table: 'sessions', where: own },
  { table: 'idempotentAnswers', where: own },
  { table: 'auditRecords', where: own, omit: 'sequence' },
  { table: 'verifications', where: own },
  { table: 'jobRows', where: of('jobId', 'jobs') },
  { table: 'jobs', where: own },
  { table: 'commands', where: own, omit: 'sequence' },
  { table: 'commandCounts', where: own, left: byTriggers },
  { table: 'firmwareTargets', where: of('rolloutId', 'firmwareRollouts') },
  { table: 'firmwareDeliveries', where: own },
  { table: 'firmwareCounts', where: of('rolloutId', 'firmwareRollouts'), left: byTriggers },
  { table: 'firmwareRollouts', where: own },
  { table: 'firmwareUploads', where: own },
  { table: 'firmwareFiles', where: own },
  { table: 'firmwarePackages', where: own },
  { table: 'bridges', where: own },
  { table: 'refusals', where: own, omit: 'sequence' },
  { table: 'publications', where: of('deviceId', 'devices') },
  { table: 'associationCodes', where: own },
  { table: 'credentials', where: own },
  { table: 'certificates', where: own },
  { table: 'certificateAuthorities', where: own },
  {
    table: 'devicePresence',
    where: of('row', 'devices', 'row'),
    to: {
      row: `(SELECT "copied"."row" FROM "source"."devices" AS "given" JOIN "main"."devices" AS "copied" USING ("id")
        WHERE "given"."row" = t."row")`,
    },
  },
  { table: 'devices', where: own, omit: 'row' },
  { table: 'deviceCounts', where: own, left: byTriggers },
  { table: 'placedDeviceCounts', where: own, left: byTriggers },
  { table: 'firmwareVersionCounts', where: own, left: byTriggers },
  { table: 'endUsers', where: own },
  { table: 'applications', where: own },
  { table: 'organizations', where: own },
  { table: 'customFields', where: own },
  { table: 'channelTemplates', where: own },
  { table: 'deviceTemplates', where: own },
  { table: 'endUserTemplates', where: own },
  { table: 'organizationTemplates', where: own },
  { table: 'accountUsers', where: own },
  { table: 'identities', where: own },
  { table: 'kept', where: own, left: byTriggers },
  { table: 'accounts', where: '"id" IN "moving"' },
];

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
