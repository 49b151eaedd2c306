/** Runs the examples of docs/messages.md as they are there, in a shell. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import t from 'tap';
import { startService } from '../support/service.js';

const run = promisify(execFile);
const text = readFileSync('docs/messages.md', 'utf8');
const blocks = [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block]) => block);

t.test('every command of docs/messages.md does what the text says', async (t) => {
  const service = await startService(t);
  const template = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const { endUser } = await service.endUser((await service.organization()).id);
  const env = {
    PATH: process.env.PATH ?? '',
    URL: service.server.url,
    ACCOUNT: service.accountId,
    TOKEN: service.admin,
    DEVICE: device.id,
    SECRET: secret,
    END_USER: endUser.id,
    TOPIC: service.topic(device.id, 'readings'),
  };
  /** Runs the next block of the document: what it prints, in lines. */
  const lines = async (): Promise<string[]> => {
    const { stdout } = await run('sh', ['-ec', blocks.shift() ?? 'exit 9'], { env });
    return stdout.replace(/\}\{/g, '}\n{').trim().split('\n');
  };
  const next = async () => (await lines()).map((line) => JSON.parse(line));

  t.strictSame(
    await next(),
    [1, 2, 1, 3, 2, 2, 1].map((count) => ({ success: true, count })),
    'every form of points',
  );
  const refused = await service.http('POST', `/api/v4/data/${env.TOPIC}`, {
    body: 'rubbish',
    headers: { 'content-type': 'text/csv' },
  });
  const [, said = ''] = /^```json\n([\s\S]*?)^```$/m.exec(text) ?? [];
  t.strictSame(refused.body.error, JSON.parse(said).error);
  t.match(await next(), [
    { success: true, rejection: undefined },
    { success: true, rejection: { code: 106 } },
  ]);
  const [made] = await next();
  service.secrets.add(made.mqttCredential.secret);
  t.match(made, { mqttCredential: { entityType: 'endUser', secret: String } });

  const read = await lines();
  const [latest, page, groups, rollup] = read.slice(0, 4).map((line) => JSON.parse(line));
  t.match(latest.result, [{ category: 'door', stringValue: 'open' }]);
  t.match(page, { meta: { count: 2, pagingToken: String } });
  t.ok(groups.result.every((group: { values: unknown[] }) => group.values.length > 0));
  const hour = rollup.result.find(({ category }: { category: string }) => category === 'room/temperature');
  t.match(hour, { time: '2026-01-31T09:00:00.000Z', avg: 21.5, max: 21.5, count: 2 });
  const csv = read.indexOf('timestamp,category,numericValue,stringValue');
  t.equal(csv, 4);
  const table = read.indexOf('time,category,avg,count');
  t.strictSame(
    read.slice(table + 1),
    ['room/door,,2', 'room/temperature,21.5,2', 'temperature,21.5,1'].map((row) => `2026-01-30T23:00:00.000Z,${row}`),
    'a day in Berlin',
  );
  // Twelve points were posted, and one was published.
  t.equal(read.slice(5, table).filter((line) => line.startsWith('2026-') || /^\d/.test(line)).length, 13);
  t.equal(read.filter((line) => line.startsWith('{"time":')).length, 13);

  const [one, two, found] = await next();
  t.match(one.logs, [{ severity: 'error', code: 'E7', tags: ['pump'], custom: { rpm: 900 } }]);
  t.match(two.logs, [{ message: 'one' }, { sourceTimestamp: '2026-01-31T09:30:00.000Z' }]);
  t.match(found.logs, { results: [{ message: 'pump overheated' }], meta: { count: 1 } });
  t.match(await next(), [{ hits: { total: 1, hits: [{ _source: { message: 'pump overheated' } }] } }]);
  const [kept, reset, usage] = await next();
  t.strictSame(
    [kept.retention, reset.retention],
    [90, null].map((retentionDays) => ({ retentionDays, default: 0 })),
  );
  t.match(usage, { usage: { points: 13, outbox: 0 } });
  t.match(await next(), [
    { refusals: { results: [{ action: 'publish', principal: { type: 'device', id: device.id } }] } },
  ]);
  t.strictSame(blocks, [], 'and no others are left');
});
