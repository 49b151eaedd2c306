/** Whatever is kept of a device says what becomes of it when the device goes to another customer. */
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { storedRows } from '../support/stored.ts';

const t = await part(import.meta);

/** Columns by which a row belongs to a device, or to a topic or session of one. */
const names = ['deviceId', 'entityId', 'topic', 'series', 'session', 'possession'];

/** Each table that has one of them. `possession.test.ts` looks at what people may read. */
const tables: Record<string, Record<string, string>> = {
  'people see what belongs to the present possession': {
    'registry.db': 'commands devices firmwareDeliveries refusals',
    'messages.db': 'aheadPoints categoryMarks latePoints logs mqttRetained points series',
  },
  'what waits ends with the possession': { 'messages.db': 'mqttMessages mqttQueue mqttWills' },
  'a claim ends it; callers of the whole account make it, or its owner, and then it ends with the possession': {
    'registry.db': 'associationCodes',
  },
  'callers of the whole account alone read it': {
    'registry.db': 'enrollments firmwareTargets jobRows supportRequests verifications',
    'messages.db': 'outbox',
  },
  'the device proves itself with it, for whomever it works': {
    'registry.db': 'certificates credentials publications renewals',
  },
  'its caller alone reads it again': { 'registry.db': 'idempotentAnswers' },
  'it is of a product': { 'registry.db': 'channelTemplates' },
  'it has no content': { 'messages.db': 'mqttIncoming mqttSubscriptions' },
};

t.test('each table with rows of devices is known', async (t) => {
  const service = await sharedService(t);
  for (const database of ['registry.db', 'messages.db']) {
    const known = Object.values(tables).flatMap((one) => one[database]?.split(' ') ?? []);
    const found = storedRows<{ name: string }>(
      service,
      `SELECT DISTINCT t."name" FROM "sqlite_master" AS t, pragma_table_info(t."name") AS c
        WHERE t."type" = 'table' AND c."name" IN (${names.map(() => '?')})`,
      names,
      database,
    );
    t.same(found.map(({ name }) => name).sort(), known.sort(), database);
  }
});

t.end();
