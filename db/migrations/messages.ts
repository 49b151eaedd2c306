import type { Migration } from './index.js';
import * as timeSeriesAndLogs from './messages-0001.js';
import * as mqttSessions from './messages-0002.js';
import * as logText from './messages-0003.js';
import * as outbox from './messages-0004.js';
import * as oldestFirst from './messages-0005.js';
import * as categoryMarks from './messages-0006.js';
import * as missed from './messages-0007.js';
import * as arrivals from './messages-0008.js';
import * as numericCodes from './messages-0012.js';
import * as outboxAccounts from './messages-0013.js';
import * as retainedUse from './messages-0014.js';
import * as heldBytes from './messages-0015.js';

/** The steps of messages.db, in order. A step that has been released is never changed. */
export const messageMigrations: readonly Migration[] = [
  timeSeriesAndLogs,
  mqttSessions,
  logText,
  outbox,
  oldestFirst,
  categoryMarks,
  missed,
  arrivals,
  numericCodes,
  outboxAccounts,
  retainedUse,
  heldBytes,
];
