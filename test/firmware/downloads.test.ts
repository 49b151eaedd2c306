/** Downloads share places and the disk: slow readers, accounts that compete, and downloads that nobody reads. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { FirmwareFiles } from '../../db/files/firmware.ts';
import { Downloads } from '../../src/firmware/delivery/downloads.ts';
import { Places } from '../../src/firmware/delivery/places.ts';
import type { Delivery } from '../../src/firmware/rollouts/rollout.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { type Device, devices, offerTo, publish, rollOut, rolloutUntil, sha256 } from './fleet.ts';

const t = await part(import.meta);

/** More than the system keeps for a connection. */
const size = 16 * 1024 * 1024;

function open(url: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false }, resolve).on('error', reject);
  });
}

/** Bytes that come until the end, or until the connection breaks. */
function drain(response: IncomingMessage): Promise<number> {
  return new Promise((resolve) => {
    let bytes = 0;
    response.on('data', (part: Buffer) => {
      bytes += part.length;
    });
    response.on('error', () => {});
    response.on('close', () => resolve(bytes));
  });
}

/** A server that sends one file at /ACCOUNT/DEVICE. */
async function serving(t: Test, most: number, patience: { place: number; end: number }) {
  const directory = temporaryDirectory(t);
  const bytes = randomBytes(size);
  const hash = sha256(bytes);
  mkdirSync(join(directory, 'firmware'), { recursive: true });
  writeFileSync(join(directory, 'firmware', hash), bytes);
  const downloads = new Downloads(new FirmwareFiles(directory), most, () => {}, patience);
  const server = createServer((request, response) => {
    const [, accountId = '', deviceId = ''] = (request.url ?? '').split('/');
    const delivery = { accountId, deviceId } as Delivery;
    const giveBack = downloads.places.takePlace(accountId);
    void downloads.send(response, { delivery, sha256: hash, from: 0, to: size - 1 }, giveBack);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(async () => {
    await downloads.endAll();
    server.close();
  });
  return { downloads, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

t.test(
  'places: an account alone may have all of them, and passes some on as soon as another one wants any',
  async (t) => {
    const places = new Places(4);
    const first = Array.from({ length: 4 }, () => places.takePlace('a'));
    t.throws(() => places.takePlace('a'), /SLIPWAY_FIRMWARE_DOWNLOADS/);
    const other = [places.takePlace('b'), places.takePlace('b')];
    t.equal(places.taken, 4);
    t.throws(() => places.takePlace('b'), /SLIPWAY_FIRMWARE_DOWNLOADS/, 'it has its share');
    t.throws(() => places.takePlace('a'), /SLIPWAY_FIRMWARE_DOWNLOADS/);
    // The two oldest were passed on: giving them back has no effect.
    for (const giveBack of first.slice(0, 2)) giveBack();
    t.equal(places.taken, 4);
    for (const giveBack of [...first, ...other, ...other]) giveBack();
    t.equal(places.taken, 0);
  },
);

t.test('readers that do not read lose their places, keep nobody waiting, and are ended at last', async (t) => {
  // Nobody is ended before the quick one has been served, however long that takes.
  const patience = { place: 20, end: Number.POSITIVE_INFINITY };
  const { downloads, url } = await serving(t, 2, patience);
  const stalled: IncomingMessage[] = [];
  for (let n = 0; n < 12; n += 1) {
    await until(() => downloads.places.taken < 2);
    stalled.push(await open(`${url}/a/${n}`));
  }
  await until(() => downloads.places.taken === 0);
  t.ok(downloads.waiting <= 4, 'only so many may wait');
  t.equal(await drain(await open(`${url}/b/quick`)), size, 'another one is served to its end');
  patience.end = 400;
  await until(() => downloads.running === 0);
  t.equal(downloads.ended, 12);
  const got = await Promise.all(stalled.map(drain));
  t.ok(
    got.every((bytes) => bytes < size),
    'their readers see that it is not the whole file',
  );
});

t.test('a place is for who reads: further devices are told when to try again, slow ones hold none', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_FIRMWARE_DOWNLOADS: '1' } });
  const template = await service.template();
  const [slow, quick] = (await devices(service, template.id, 2)) as [Device, Device];
  const firmware = await publish(service, template.id, '2', { 'app.bin': randomBytes(size) });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [slow.id, quick.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 2);
  const url = async (device: Device): Promise<string> => (await offerTo(service, device)).files[0].url;
  // Asked for before: the place is kept for two seconds only.
  const [first, other] = [await url(slow), await url(quick)];
  const stalled = await open(first);
  t.teardown(() => stalled.destroy());
  const refused = await fetch(other);
  t.equal(refused.status, 429);
  t.ok(Number(refused.headers.get('retry-after')) >= 5);
  const again = await url(quick);
  await until(async () => (await drain(await open(again))) === size);
  t.pass('the stalled one has given its place back');
});

t.end();
