/** Devices that enroll, as their firmware does. */
import { createHmac } from 'node:crypto';
import type { Made, Service } from '../support/service.ts';

export const path = '/api/v1/enroll';

/** A group with its secrets; a claim secret unless `body` says otherwise. */
export async function newGroup(service: Service, body: object = {}): Promise<Made<'enrollmentGroup'>> {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const group = await service.create('/enrollment-groups', 'enrollmentGroup', {
    ...{ name: service.unique('Group'), deviceTemplateId, proof: 'claimSecret', ...body },
  });
  for (const secret of [group.claimSecret, group.groupKey, group.hookSecret]) service.secrets.add(secret);
  return group;
}

export const basic = (username: string, password = '') => ({
  authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`,
});

/** The key that is burnt into the device of a serial number. */
export const derived = (groupKey: string, serialNumber: string) =>
  createHmac('sha256', groupKey).update(serialNumber).digest('base64url');

/** Asks with the claim secret of a group. */
export const claim = (service: Service, group: { id: string; claimSecret?: string }, body: object) =>
  service.http('POST', path, { token: null, headers: basic(group.id, group.claimSecret), body });

/** Asks with the key of a serial number. */
export const ask = (service: Service, group: Made<'enrollmentGroup'>, serialNumber: string, body: object = {}) =>
  service.http('POST', path, {
    token: null,
    headers: basic(`${group.id}/${serialNumber}`, derived(group.groupKey ?? '', serialNumber)),
    body,
  });

/** The credential of an answer connects, and the connection ends. */
export async function connectOnce(service: Service, answer: { credential: { username: string; secret?: string } }) {
  const { username: deviceId, secret = '' } = answer.credential;
  const client = await service.connect({ deviceId, secret });
  await client.endAsync();
}
