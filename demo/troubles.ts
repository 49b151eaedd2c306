/** What a fleet has besides devices that work: the rows of Home that need attention, and claims. */
import { createHash, randomBytes } from 'node:crypto';
import mqtt from 'mqtt';
import type { Call, FleetOptions, MadeEntity, Make, Online } from './answers.ts';

/**
 * The settings of a server that shows them: a limit that is nearly reached, and a bridge to this machine. The limit is one that
 * devices do not use up: at a limit of points the new ones would remove the past day.
 */
export const troubleEnv = { SLIPWAY_FIRMWARE_BYTES_PER_ACCOUNT: '10000000', SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
/** Bytes of a firmware file. Two of them nearly reach the limit. */
export const firmwareBytes = 4_200_000;

interface Fleet extends FleetOptions {
  call: Call;
  make: Make;
  templates: Map<string, string>;
  clients: readonly Online[];
}

/** Of the devices that are online, so many leave without a word. */
export const leaving = 5;
/** So many stay online and send nothing more: after a quarter of an hour they are silent. */
export const silent = 2;

export async function makeTroubles(fleet: Fleet): Promise<void> {
  await makeRefusals(fleet);
  await makeFailedJob(fleet);
  await makePausedRollout(fleet);
  await makeBridges(fleet);
  for (const { client } of fleet.clients.slice(-leaving)) client.end(true);
}

/** A misspelt channel, a payload in no form, and a wrong secret. */
async function makeRefusals({ clients, mqttPort }: Fleet): Promise<void> {
  for (const { client, device, at } of clients.slice(0, 9)) {
    const root = device.topics.slice(0, device.topics.lastIndexOf('/'));
    if (at % 3 === 0) await client.publishAsync(`${root}/reading`, ',temperature,21,', { qos: 1 });
    if (at % 3 === 1) await client.publishAsync(device.topics, 'temperature is 21', { qos: 1 });
    if (at % 3 !== 2) continue;
    const wrong = { username: device.id, password: 'of another device', reconnectPeriod: 0 };
    const refused = mqtt.connect({ protocol: 'mqtt', host: '127.0.0.1', port: mqttPort, ...wrong });
    await new Promise((resolve) => refused.once('error', resolve));
    refused.end(true);
  }
}

/** Two of its rows name a product that does not exist. */
async function makeFailedJob({ call, accountId }: Fleet): Promise<void> {
  const rows = ['Room sensor', 'Room senser', 'Room senser'].map((template, at) => ({
    serialNumber: `RS-900${at}`,
    template,
  }));
  await call('POST', `/v1/provisioning/jobs?accountId=${accountId}`, { rows });
}

async function makePausedRollout({ call, make, accountId, templates }: Fleet): Promise<void> {
  const deviceTemplateId = templates.get('Pump controller');
  const body = { name: 'Pump firmware', firmwareVersion: '4.1.0', deviceTemplateId };
  const { id } = await make('/firmware/packages', { ...body, description: 'Softer start' });
  const content = randomBytes(firmwareBytes);
  const digest = `sha-256=${createHash('sha256').update(content).digest('base64')}`;
  const headers = { 'content-type': 'application/octet-stream', digest };
  const path = `/v1/firmware/packages/${id}`;
  const { firmwarePackage } = await call<{ firmwarePackage: MadeEntity }>(
    ...(['PUT', `${path}/files/app.bin?revision=4.1.0`, content, headers] as const),
  );
  await call('POST', `${path}/publish`, undefined, { etag: firmwarePackage.version });
  const { firmwareRollout } = await call<{ firmwareRollout: MadeEntity }>('POST', '/v1/firmware/rollouts', {
    ...{ accountId, firmwarePackageId: id, target: { filter: { deviceTemplateId } } },
    stages: [{ percent: 10, pauseSeconds: 86_400 }, { percent: 100 }],
  });
  await call('POST', `/v1/firmware/rollouts/${firmwareRollout.id}/pause`, undefined, { etag: firmwareRollout.version });
}

/** One cannot deliver, because no such host exists (RFC 6761); what the other one delivers is refused with 405. */
async function makeBridges({ url, call, make, accountId, clients }: Fleet): Promise<void> {
  await make('/bridges', { name: 'Data lake', kind: 'mqtt', url: 'mqtts://data-lake.invalid:8883' });
  await make('/bridges', { name: 'Maintenance', kind: 'webhook', url: `${url}/health/live` });
  const { channelTemplates } = await call<{ channelTemplates: { results: (MadeEntity & { name: string })[] } }>(
    ...(['GET', `/v1/channels/templates?accountId=${accountId}&pageSize=100`] as const),
  );
  for (const { id, version } of channelTemplates.results.filter(({ name }) => name === 'events'))
    await call('PUT', `/v1/channels/templates/${id}`, { streamBridgeDelivery: 2 }, { etag: version });
  for (const { client, device } of clients.slice(0, 12))
    await client.publishAsync(device.topics.replace(/readings$/, 'events'), '{"button":"pressed"}', { qos: 1 });
}
