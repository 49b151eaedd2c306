/** An account with 20,000 of each that an entity of it may have. */
import { newId } from '../../src/core/ids.ts';
import { newGroup } from '../enrollment/devices.ts';
import { publish, rollOut } from '../firmware/fleet.ts';
import { copyStored, type StoredValues } from './copies.ts';
import { changeStored, leaveDeadLetter } from './faults.ts';
import { follow, provision } from './jobs.ts';
import { backEnd, role } from './roles.ts';
import { type ScimClient, scimProvider } from './scim.ts';
import { present, type Service } from './service.ts';

export const many = 20_000;
const then = '2026-01-01T00:00:00.000Z';
/** Nothing of what is made begins by itself. */
const later = '2100-01-01T00:00:00Z';

/** Rows like one, as many as a client would need hours for. */
const copy = (
  service: Service,
  table: string,
  where: StoredValues,
  changes: (n: number) => StoredValues,
  database?: string,
) => copyStored(service, table, where, many, changes, database);

/** What is made, by its name. */
export type FullAccount = Awaited<ReturnType<typeof fillAccount>>;

/** Devices and people below `place`, which is below `top`; all that is named has them, or is had by them. */
export async function fillAccount(service: Service) {
  const ids = () => Array.from({ length: many }, () => newId(service.accountId));
  const at = (list: string[], n: number) => present(list[n]);
  const [top, other] = [await service.organization(), await service.organization()];
  const place = await service.organization({ parentId: top.id });
  const template = await service.template({ channels: ['data'] });
  const channels = await service.ok('GET', `/api/v1/channels/templates?accountId=${service.accountId}`);
  const channel = present(
    channels.channelTemplates.results.find(({ entityId, name }) => entityId === template.id && name === 'data'),
  );
  const about = { deviceTemplateId: template.id, name: 'colour', fieldType: 'string' };
  const field = await service.create('/devices/custom-fields', 'deviceField', about);
  const body = { deviceTemplateId: template.id, organizationId: place.id, colour: 'red', firmwareVersion: '1' };
  const { device } = await service.device(body);
  const deviceIds = ids();
  await copy(service, 'devices', { id: device.id }, (n) => ({ id: at(deviceIds, n), serialNumber: `copy ${n}` }));

  const roleOfPeople = await role(service, 'organization', { device: ['read'] });
  const { endUser } = await service.endUser(place.id, { roleId: roleOfPeople.id });
  const users = ids();
  const email = (n: number) => ({ email: `${n}@example.com`, emailKey: `${n}@example.com` });
  await copy(service, 'identities', { id: endUser.userId }, (n) => ({ id: at(users, n), ...email(n) }));
  await copy(service, 'endUsers', { id: endUser.id }, (n) => ({ id: newId(service.accountId), userId: at(users, n) }));
  const child = await service.organization({ parentId: top.id });
  await copy(service, 'organizations', { id: child.id }, (n) => ({ id: newId(service.accountId), name: `copy ${n}` }));
  const scim = await peopleOfProvider(service, roleOfPeople.id, place.id, users);

  const group = await newGroup(service, { deviceTemplateId: template.id });
  await changeStored(
    service,
    `INSERT INTO "enrollments" ("deviceId", "groupId", "accountId", "serialNumber", "enrolled", "used", "permitted")
      SELECT "value", ?, ?, "value", '${then}', 0, 0 FROM json_each(?)`,
    [group.id, service.accountId, JSON.stringify(deviceIds)],
  );
  const authority = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    ...{ name: 'devices', issuing: true },
  });
  const program = await backEnd(service);
  const { command } = await service.ok('POST', `/api/v1/devices/${device.id}/commands`, {
    ...{ body: { name: 'blink' }, token: program.token },
  });
  const commands = (n: number) => ({ id: newId(service.accountId), deviceId: at(deviceIds, n) });
  await copy(service, 'commands', { id: command.id }, commands);
  return {
    ...{ device, template, field, channel, top, place, other, group, authority, program, deviceIds },
    ...{ role: roleOfPeople, provider: scim.provider },
    ...(await updates(service, template.id, device.id, deviceIds)),
    ...(await jobsOf(service, template.id, other.id, deviceIds)),
    bridge: await deadLetters(service, device.id),
  };
}

async function peopleOfProvider(
  service: Service,
  roleId: string,
  organizationId: string,
  users: string[],
): Promise<ScimClient> {
  const scim = await scimProvider(service, [{ group: 'All', roleId, organizationId }]);
  const { id } = await scim.person();
  const groupId = await scim.group('All', id);
  const people = users.map(() => newId(service.accountId));
  const person = (n: number) => ({ id: present(people[n]), userId: present(users[n]), userNameKey: `${n}` });
  await copy(service, 'scimUsers', { id }, person);
  await copy(service, 'scimMembers', { memberId: id, groupId }, (n) => ({ memberId: present(people[n]) }));
  return scim;
}

/** A rollout that has not ended on any of these devices, and one that has failed on each. */
async function updates(service: Service, deviceTemplateId: string, deviceId: string, deviceIds: string[]) {
  const firmware = await publish(service, deviceTemplateId, '2');
  const of = { target: { deviceIds: [deviceId] }, startAt: later };
  const [rollout, failedRollout] = [await rollOut(service, firmware, of), await rollOut(service, firmware, of)];
  for (const [{ id }, state] of [
    [rollout, 'pending'],
    [failedRollout, 'failed'],
  ] as const)
    await changeStored(
      service,
      `INSERT INTO "firmwareDeliveries" SELECT ?, "value", ?, 0, '${state}', NULL, NULL, NULL, NULL, 1, 0, '${then}', ?, NULL, NULL, 0, 0
        FROM json_each(?)`,
      [id, service.accountId, Date.parse(later), JSON.stringify(deviceIds)],
    );
  return { firmware, rollout, failedRollout };
}

/** Jobs that have made and moved so many devices. */
async function jobsOf(service: Service, deviceTemplateId: string, organizationId: string, deviceIds: string[]) {
  const job = await provision(service, [{ serialNumber: 'provisioned', deviceTemplateId }]);
  await copy(service, 'jobRows', { jobId: job.id }, (n) => ({ row: n + 2 }));
  const move = { action: 'move', organizationId, ids: [present(deviceIds[0])] };
  const moved = await service.http('POST', '/api/v1/devices/jobs', { body: move });
  const moveJob = (await follow(service, moved.body.job.id)).at(-1);
  await copy(service, 'jobRows', { jobId: moveJob.id }, (n) => ({ row: n + 2 }));
  return { job, moveJob };
}

async function deadLetters(service: Service, deviceId: string) {
  const of = { name: 'dead', kind: 'webhook', url: 'http://127.0.0.1:9/' };
  const bridge = await service.create('/bridges', 'bridge', of);
  await leaveDeadLetter(service, bridge.id, 'data', { deviceId });
  const letter = (n: number) => ({ id: newId(service.accountId), sequence: 1000 + n });
  await copy(service, 'outbox', { bridgeId: bridge.id }, letter, 'messages.db');
  return bridge;
}
