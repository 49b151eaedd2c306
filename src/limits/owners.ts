/**
 * Who pays for what: for each table of both databases the limit that counts its rows by account, or why it needs none. A test holds it
 * against the schema: a table that is not here fails it, and so does one that the share of the disk does not count.
 */
import type { Tables } from '../../db/registry/records.ts';
import type { LimitName } from './table.ts';

/** The tables of the registry; a view holds nothing of its own. */
type RegistryTable = Exclude<keyof Tables, 'wholeDevices'>;

export type Owner =
  /** Counted by a limit of the account, or by its share of the disk; `and` names a limit that is smaller. */
  | { counted: LimitName | 'diskShare'; and?: LimitName }
  /** At most so many rows for each row of another table. */
  | { within: string; most: string }
  | { because: string };

const share = { counted: 'diskShare' } as const;
const derived = { because: 'triggers keep it: a row for each account and kind, state or place that has rows' } as const;

export const registryOwners: Readonly<Record<RegistryTable, Owner>> = {
  accounts: { because: 'the operator makes accounts' },
  identities: share,
  sessions: { counted: 'sessions' },
  applications: share,
  mailedTokens: { within: 'identities', most: 'one for each purpose' },
  mfaMethods: { within: 'identities', most: 'one for each method' },
  recoveryCodes: { within: 'identities', most: 'ten' },
  mfaLogins: { within: 'identities', most: '1,000 of the last ten minutes: the oldest go' },
  identityProviders: share,
  bridges: { counted: 'diskShare' },
  federatedIdentities: share,
  federatedLogins: { within: 'identityProviders', most: '10,000 of the last ten minutes: the oldest go' },
  auditRecords: { counted: 'auditRecords' },
  accountUsers: share,
  deviceTemplates: share,
  endUserTemplates: share,
  organizationTemplates: share,
  channelTemplates: { counted: 'diskShare', and: 'channelTemplates' },
  customFields: { counted: 'diskShare', and: 'customFields' },
  organizations: share,
  endUsers: { counted: 'diskShare', and: 'endUsersPerPerson' },
  devices: share,
  devicePresence: { within: 'devices', most: 'one' },
  credentials: share,
  certificates: share,
  certificateAuthorities: share,
  publications: { within: 'devices', most: 'one' },
  verifications: { counted: 'verifications' },
  jobs: { counted: 'jobs' },
  jobRows: { counted: 'jobRows', and: 'jobRowBytes' },
  associationCodes: share,
  refusals: { counted: 'refusals' },
  deviceCounts: derived,
  placedDeviceCounts: derived,
  deviceListCounts: { within: 'accounts', most: '64: the next takes the place of one of them' },
  idempotentAnswers: { counted: 'diskShare', and: 'idempotentBytes' },
  firmwarePackages: share,
  firmwareFiles: { counted: 'diskShare', and: 'firmwareBytes' },
  firmwareUploads: { counted: 'diskShare', and: 'firmwareBytes' },
  firmwareRollouts: { counted: 'diskShare', and: 'firmwareRollouts' },
  firmwareTargets: share,
  firmwareDeliveries: share,
  firmwareCounts: derived,
  commands: { counted: 'commandBytes', and: 'commands' },
  commandCounts: derived,
  kept: derived,
};

export const messageOwners: Readonly<Record<string, Owner>> = {
  series: share,
  categories: share,
  points: { counted: 'diskShare', and: 'accountMessagesBytes' },
  logs: { counted: 'diskShare', and: 'accountMessagesBytes' },
  categoryMarks: { within: 'points', most: 'one, and rarely that' },
  latePoints: { within: 'points', most: 'one, of some thousands in a series' },
  arrivals: { within: 'points', most: 'one for 64 KiB of them' },
  messageCounts: derived,
  heldBytes: derived,
  outbox: share,
  mqttSessions: { counted: 'diskShare', and: 'mqttStoredSessions' },
  mqttSubscriptions: { counted: 'diskShare', and: 'mqttSubscriptions' },
  mqttMessages: { counted: 'diskShare', and: 'mqttQueueBytes' },
  mqttQueue: { counted: 'mqttQueueBytes', and: 'mqttQueue' },
  mqttIncoming: { counted: 'mqttUnreleased' },
  mqttRetained: { counted: 'diskShare', and: 'mqttRetainedBytes' },
  mqttRetainedUse: derived,
  mqttWills: { counted: 'diskShare', and: 'mqttConnectionsPerDevice' },
  counters: { because: 'it has two rows' },
};

/** Tables of both files that no caller writes, and those in which SQLite keeps the indexes of texts: they have what their table has. */
export const ownTables = /^(migrations|sqlite_.*|logsText(_.*)?|devices_\w+_(text(_\w+)?|terms))$/;
