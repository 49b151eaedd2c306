/** What the tests of firmware and commands share: packages that are published, rollouts, devices that poll. */
import { createHash, randomBytes } from 'node:crypto';
import type { Answer, Anything, Made, Service } from '../support/service.ts';

export const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

export interface Published {
  id: string;
  deviceTemplateId: string;
  firmwareVersion: string;
  files: Array<{ name: string; sha256: string; size: number; revision: string }>;
}

/** A published package of some files. */
export async function publish(
  service: Service,
  deviceTemplateId: string,
  firmwareVersion: string,
  files: Record<string, Uint8Array> = { 'app.bin': randomBytes(1000) },
  token = service.admin,
  accountId = service.accountId,
): Promise<Published> {
  const body = { accountId, deviceTemplateId, name: service.unique('Firmware'), firmwareVersion };
  const { id } = await service.create('/firmware/packages', 'firmwarePackage', body, token);
  let version = '';
  for (const [name, bytes] of Object.entries(files)) {
    const answer = await fetch(`${service.server.url}/api/v1/firmware/packages/${id}/files/${name}`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/octet-stream' },
      body: new Uint8Array(bytes),
    });
    if (answer.status !== 200) throw new Error(await answer.text());
    version = ((await answer.json()) as Anything).firmwarePackage.version;
  }
  const published = await service.ok('POST', `/api/v1/firmware/packages/${id}/publish`, {
    headers: { etag: version },
    token,
  });
  return published.firmwarePackage;
}

/** Devices of a template, with their secrets. */
export async function devices(service: Service, deviceTemplateId: string, count: number, more: object = {}) {
  const made: Array<{ id: string; secret: string }> = [];
  for (let n = 0; n < count; n += 1) {
    const { device, secret } = await service.device({ deviceTemplateId, ...more });
    made.push({ id: device.id, secret });
  }
  return made;
}

export function rollOut(service: Service, firmware: Published, body: object) {
  return service.create('/firmware/rollouts', 'firmwareRollout', { firmwarePackageId: firmware.id, ...body });
}

export async function rollout(service: Service, id: string) {
  return (await service.ok('GET', `/api/v1/firmware/rollouts/${id}`)).firmwareRollout;
}

/** Waits until a rollout is as wanted: each of its events is looked at. */
export async function rolloutUntil(
  service: Service,
  id: string,
  isWanted: (rollout: Made<'firmwareRollout'>) => boolean,
) {
  const aborter = new AbortController();
  const response = await fetch(`${service.server.url}/api/v1/firmware/rollouts/${id}/events`, {
    headers: { authorization: `Bearer ${service.admin}` },
    signal: aborter.signal,
  });
  if (response.status !== 200 || !response.body) throw new Error(await response.text());
  const decoder = new TextDecoder();
  let rest = '';
  let last: Made<'firmwareRollout'> | undefined;
  try {
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n\n');
      rest = parts.pop() ?? '';
      for (const part of parts) {
        const [, data] = /^event: firmwareRollout\ndata: (.*)$/.exec(part) ?? [];
        if (data === undefined) continue;
        const rollout: Made<'firmwareRollout'> = JSON.parse(data);
        last = rollout;
        if (isWanted(rollout)) return rollout;
      }
    }
  } finally {
    aborter.abort();
  }
  throw new Error(`the rollout has ended as ${JSON.stringify(last)}`);
}

export interface Device {
  id: string;
  secret: string;
}

/** A request of a device, with its secret. */
export function asDevice(
  service: Service,
  { id, secret }: Device,
  method: string,
  path: string,
  body?: object,
): Promise<Answer> {
  service.secrets.add(secret);
  const authorization = `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;
  return service.http(method, `/api/v1${path}`, { token: null, headers: { authorization }, ...(body && { body }) });
}

/** What a device is offered. */
export async function offerTo(service: Service, device: Device) {
  const answer = await asDevice(service, device, 'GET', '/firmware/offer');
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`);
  return answer.body;
}

/** Polls, downloads, checks and installs what is offered. */
export async function update(
  service: Service,
  device: Device,
  outcome: 'succeeded' | 'failed' = 'succeeded',
): Promise<Answer> {
  const { firmwareVersion, files } = await offerTo(service, device);
  for (const { url, sha256: wanted } of files) {
    const response = await fetch(url);
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (response.status !== 200 || sha256(bytes) !== wanted) throw new Error(`a download answered ${response.status}`);
  }
  const failure = outcome === 'failed' && { code: 7, message: 'It does not start.' };
  return asDevice(service, device, 'POST', '/firmware/status', { state: outcome, firmwareVersion, ...failure });
}
