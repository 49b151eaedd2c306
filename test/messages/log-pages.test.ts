/** Pages of long log entries: they are read and sent a part at a time, and rights are checked before each part. */

import { beforeLogPart, logParts } from '../support/faults.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

const perPost = 50;
const posts = 4;

/** A device with 200 entries of some 15 KiB, named by their numbers. */
async function withEntries(service: Service) {
  const device = await service.create('/devices', 'device', { serialNumber: '1' });
  for (let post = 0; post < posts; post += 1) {
    const body = Array.from({ length: perPost }, (_, n) => {
      const number = post * perPost + n;
      return { message: `entry ${number}`, details: 'x'.repeat(15_000), sourceTimestamp: 1_700_000_000_000 + number };
    });
    await service.ok('POST', `/api/v1/devices/${device.id}/logs`, { body });
  }
  return device;
}

t.test('a page of 3 MB comes in parts of a quarter, whole and in order, and ends where the right ends', async (t) => {
  const service = await sharedService(t);
  const device = await withEntries(service);
  const parts = logParts(t, service);
  const expected = Array.from({ length: perPost * posts }, (_, n) => `entry ${perPost * posts - 1 - n}`);
  const path = `/api/v1/devices/${device.id}/logs?pageSize=1000`;
  const { logs } = await service.ok('GET', path);
  t.strictSame(
    logs.results.map(({ message }) => message),
    expected,
  );
  t.equal(logs.meta.count, expected.length);
  t.ok(parts.length >= 10 && Math.max(...parts) <= 20, 'no part is long');

  parts.length = 0;
  const search = { query: { bool: { must: [{ term: { deviceId: device.id } }] } }, size: 1000 };
  const { hits } = await service.ok('POST', '/api/v1/logs/search', { body: search });
  t.strictSame(
    hits.hits.map(({ _source }) => _source.message),
    expected,
  );
  t.equal(hits.total, expected.length);
  t.ok(parts.length >= 10 && Math.max(...parts) <= 20, 'no part is long');

  beforeLogPart(t, service, `GET ${path.split('?')[0]}`, () =>
    service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: device.version } }),
  );
  await t.rejects(service.http('GET', path), 'the answer is cut where the device is deleted');
});

t.end();
