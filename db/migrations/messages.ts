import type { Migration } from './index.js';
import * as timeSeriesAndLogs from './messages-0001.js';
import * as mqttSessions from './messages-0002.js';
import * as logText from './messages-0003.js';

/** The steps of messages.db, in order. A step that has been released is never changed. */
export const messageMigrations: readonly Migration[] = [timeSeriesAndLogs, mqttSessions, logText];
