/** A service with one device, and what tests of the broker do with it. */
import root, { type Test } from 'tap';
import { type Options, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { certificateFiles, trustAnyCertificate } from './certificate.ts';
import { connectPacket, type RawClient, rawClient } from './raw.ts';

export interface Fixture {
  service: Service;
  device: { id: string; deviceTemplateId: string };
  secret: string;
  who: { deviceId: string; secret: string };
  topic: (channel: string) => string;
}

/** A service with one device that has a stored channel `temperature` and a plain one `chat`. */
export async function fixture(t: Test, env: Record<string, string> = {}, options: Options = {}): Promise<Fixture> {
  return fixtureIn(await startService(t, { ...options, env }));
}

/** Settings of a shared service that waits a second for CONNACK. */
export const hasty = { SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '1' };

let secure: Record<string, string> | undefined;
/** A device in a shared service that has a certificate, which the test trusts. */
export async function secureFixture(t: Test): Promise<Fixture> {
  trustAnyCertificate(t);
  secure ??= certificateFiles(root);
  return fixtureIn(await sharedService(t, secure));
}

/** The same in a service that other tests use as well. */
export async function fixtureIn(service: Service): Promise<Fixture> {
  const template = await service.template({
    channels: ['temperature', { name: 'chat', persistenceType: 'simple' }],
  });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const who = { deviceId: device.id, secret };
  return { service, device, secret, who, topic: (channel) => service.topic(device.id, channel) };
}

export async function rawConnected(
  t: Test,
  { service, device, secret }: Fixture,
  more: object = {},
): Promise<RawClient> {
  const client = await rawClient(t, service.server.mqttPort);
  client.send(connectPacket({ username: device.id, password: Buffer.from(secret), ...more }));
  t.match(await client.next(), { cmd: 'connack', returnCode: 0 });
  return client;
}

/** The values of a series, newest first. */
export const stored = async ({ service, device }: Fixture, channel = 'temperature'): Promise<unknown[]> => {
  const path = `/api/v4/data/${service.topic(device.id, channel)}/latest?pageSize=1000`;
  return (await service.ok('GET', path)).result.map((point: { numericValue: number }) => point.numericValue);
};

/** Another device of the same template. */
export async function sibling(f: Fixture): Promise<Fixture> {
  const { device, secret } = await f.service.device({ deviceTemplateId: f.device.deviceTemplateId });
  const who = { deviceId: device.id, secret };
  return { ...f, device, secret, who, topic: (channel) => f.service.topic(device.id, channel) };
}

/** A device of another account, with a stored channel `temperature` and a plain one `chat`. */
export async function neighbour(f: Fixture): Promise<Fixture> {
  const { service } = f;
  const { accountId, admin: token } = await service.account();
  const make = <const P extends string, const W extends string>(path: P, wrapper: W, body: object) =>
    service.create(path, wrapper, { accountId, ...body }, token);
  const template = await make('/devices/templates', 'deviceTemplate', { name: 'Of a neighbour' });
  const of = { entityId: template.id, entityType: 'deviceTemplate' };
  for (const channel of [
    { name: 'temperature', persistenceType: 'timeSeries' },
    { name: 'chat', persistenceType: 'simple' },
  ])
    await make('/channels/templates', 'channelTemplate', { ...of, ...channel });
  const device = await make('/devices', 'device', { serialNumber: 'N', deviceTemplateId: template.id });
  const credential = { entityId: device.id, entityType: 'device' };
  const { secret } = await make('/access/mqtt-credentials', 'mqttCredential', credential);
  const topic = (name: string) => `slipway/v1/${accountId}/d/${device.id}/${name}`;
  return { service, device, secret, who: { deviceId: device.id, secret }, topic };
}

export async function versionOf(service: Service, id: string): Promise<string> {
  return (await service.ok('GET', `/api/v1/devices/${id}`)).device.version;
}
