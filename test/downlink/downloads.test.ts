/** Two hundred downloads at once: what they cost in memory; slow readers, and places that run out. */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { get } from 'node:http';
import t from 'tap';
import { temporaryDirectory } from '../support/directory.js';
import { launch } from '../support/process.js';
import { adminEmail, adminPassword, type Json, startService } from '../support/service.js';
import { type Device, devices, offerTo, publish, rollOut, rolloutUntil } from './fleet.js';

const count = 200;
const size = 8 * 1024 * 1024;

/** Resident memory of a process, in bytes; the peak with `VmHWM`. */
function memoryOf(pid: number | undefined, what: 'VmRSS' | 'VmHWM'): number {
  const [, kilobytes] = new RegExp(`${what}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kilobytes) * 1024;
}

/** Reads a URL to its end, keeping nothing: how many bytes it was. */
function drain(url: string): Promise<number> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false }, (response) => {
      let bytes = 0;
      response.on('data', (part: Buffer) => {
        bytes += part.length;
      });
      response.on('end', () => resolve(bytes));
      response.on('error', reject);
    }).on('error', reject);
  });
}

t.test(`${count} downloads of 8 MB at once take less than 60 MB`, async (t) => {
  const directory = temporaryDirectory(t);
  const service = await startService(t, { directory });
  const template = await service.template();
  const made = await devices(service, template.id, count);
  await publish(service, template.id, '2', { 'app.bin': randomBytes(size) });
  const { accountId } = service;
  await service.close();
  const running = await launch(directory, { SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS: '0' }).listening;
  t.teardown(() => running.child.kill('SIGKILL'));
  const call = async (method: string, path: string, authorization?: string, body?: object): Promise<Json> => {
    const headers = { 'content-type': 'application/json', ...(authorization && { authorization }) };
    const request = { method, headers, ...(body && { body: JSON.stringify(body) }) };
    return (await fetch(`${running.url}/api/v1${path}`, request)).json();
  };
  const { jwt } = await call('POST', '/auth/login-user', undefined, {
    ...{ emailAddress: adminEmail, password: adminPassword, accountId },
  });
  const packages = await call('GET', `/firmware/packages?accountId=${accountId}`, `Bearer ${jwt}`);
  const firmwarePackageId = packages.firmwarePackages.results[0].id;
  const target = { filter: { deviceTemplateId: template.id } };
  await call('POST', '/firmware/rollouts', `Bearer ${jwt}`, { accountId, firmwarePackageId, target });
  const urls: string[] = [];
  for (const { id, secret } of made) {
    const authorization = `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;
    for (;;) {
      const { files } = await call('GET', '/firmware/offer', authorization);
      if (files.length === 0) continue;
      urls.push(files[0].url);
      break;
    }
  }
  // What a first download loads and compiles is not what downloads cost.
  await drain(urls[0] ?? '');
  // The peak of the start, which hashes secrets, counts no more.
  const before = memoryOf(running.child.pid, 'VmRSS');
  let most = before;
  let answered = 0;
  let isOver = false;
  const watching = (async () => {
    while (!isOver) {
      await call('GET', '/usage', `Bearer ${jwt}`);
      answered += 1;
      most = Math.max(most, memoryOf(running.child.pid, 'VmRSS'));
    }
  })();
  const read = await Promise.all(urls.map(drain));
  isOver = true;
  await watching;
  t.ok(
    read.every((bytes) => bytes === size),
    'all are whole',
  );
  const grown = (most - before) / 1e6;
  t.ok(answered > 0, 'others are answered meanwhile');
  t.ok(grown < 60, `memory grew by ${grown.toFixed(1)} MB`);
});

t.test('a place is for who reads: further devices are told when to try again, slow ones hold none', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_FIRMWARE_DOWNLOADS: '1' } });
  const template = await service.template();
  const [slow, quick] = (await devices(service, template.id, 2)) as [Device, Device];
  const firmware = await publish(service, template.id, '2', { 'app.bin': randomBytes(size) });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [slow.id, quick.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 2);
  const url = async (device: Device): Promise<string> => (await offerTo(service, device)).files[0].url;
  const stalled = get(await url(slow), { agent: false });
  t.teardown(() => stalled.destroy());
  await new Promise((resolve) => stalled.once('response', resolve));
  const { places } = service.server.ctx.downloads;
  t.equal(places.taken, 1);
  const refused = await fetch(await url(quick));
  t.equal(refused.status, 429);
  t.ok(Number(refused.headers.get('retry-after')) >= 5);
  while (places.taken === 1) await new Promise((resolve) => setTimeout(resolve, 20));
  t.equal(await drain(await url(quick)), size, 'the stalled one has given its place back');
  // The service notes the end of a download after the client has read its last byte.
  while (service.server.ctx.downloads.running === 2) await new Promise((resolve) => setTimeout(resolve, 20));
  t.equal(service.server.ctx.downloads.running, 1, 'and goes on');
});
