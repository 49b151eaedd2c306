import type { Migration } from './index.ts';
import * as timeSeriesAndLogs from './messages-0001.ts';
import * as mqttSessions from './messages-0002.ts';
import * as logText from './messages-0003.ts';
import * as outbox from './messages-0004.ts';
import * as oldestFirst from './messages-0005.ts';
import * as categoryMarks from './messages-0006.ts';
import * as missed from './messages-0007.ts';
import * as arrivals from './messages-0008.ts';
import * as numericCodes from './messages-0012.ts';
import * as outboxAccounts from './messages-0013.ts';
import * as retainedUse from './messages-0014.ts';
import * as heldBytes from './messages-0015.ts';
import * as messageProperties from './messages-0016.ts';
import * as possessions from './messages-0017.ts';
import * as aheadPoints from './messages-0018.ts';

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
  messageProperties,
  possessions,
  aheadPoints,
];
