import type { Story } from '../story.ts';

export const messages: Story = {
  tell: async ({ t, next, service, shell }) => {
    const template = await service.template({ channels: ['readings'] });
    const { device, secret } = await service.device({ deviceTemplateId: template.id });
    const { endUser } = await service.endUser((await service.organization()).id);
    const topic = service.topic(device.id, 'readings');
    const sh = shell();
    const answers = () => sh.answers(next());
    await sh.set({
      URL: service.server.url,
      ACCOUNT: service.accountId,
      TOKEN: service.admin,
      DEVICE: device.id,
      SECRET: secret,
      END_USER: endUser.id,
      TOPIC: topic,
    });
    t.strictSame(
      await answers(),
      [1, 2, 1, 3, 2, 2, 1].map((count) => ({ success: true, count })),
      'every form of points',
    );
    const refused = await service.http('POST', `/api/v4/data/${topic}`, {
      body: 'rubbish',
      headers: { 'content-type': 'text/csv' },
    });
    t.strictSame(refused.body.error, JSON.parse(next()).error);
    t.match(await answers(), [
      { success: true, rejection: undefined },
      { success: true, rejection: { code: 106 } },
    ]);
    const [made] = await answers();
    service.secrets.add(made.mqttCredential.secret);
    t.match(made, { mqttCredential: { entityType: 'endUser', secret: String } });

    const read = (await sh.run(next())).replaceAll('}{', '}\n{').trim().split('\n');
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

    const [one, two, found] = await answers();
    t.match(one.logs, [{ severity: 'error', code: 'E7', tags: ['pump'], custom: { rpm: 900 } }]);
    t.match(two.logs, [{ message: 'one' }, { sourceTimestamp: '2026-01-31T09:30:00.000Z' }]);
    t.match(found.logs, { results: [{ message: 'pump overheated' }], meta: { count: 1 } });
    t.match(await answers(), [{ hits: { total: 1, hits: [{ _source: { message: 'pump overheated' } }] } }]);

    const stream = await sh.start(next());
    await stream.said('retry: 3000');
    await service.ok('POST', `/api/v4/data/${topic}`, {
      body: ',temperature,21.5,',
      headers: { 'content-type': 'text/csv' },
    });
    const heard = await stream.said('event: message');
    for (const line of next().trim().split('\n'))
      if (!line.startsWith(':')) t.match(heard, new RegExp(`^${/^(\w+: (\d+$)?|)/.exec(line)?.[0]}`, 'm'), line);
    stream.stop();

    const [kept, reset, usage] = await answers();
    t.strictSame(
      [kept.retention, reset.retention],
      [90, null].map((retentionDays) => ({ retentionDays, default: 0 })),
    );
    t.match(usage, { usage: { points: 14, outbox: 0 } });
    t.match(await answers(), [
      { refusals: { results: [{ action: 'publish', principal: { type: 'device', id: device.id } }] } },
    ]);
  },
};
