/** How each list is filled with the largest rows that the limits allow, by its path in the OpenAPI document. */

import { join } from 'node:path';
import { openSqlite } from '../../db/sqlite/open.ts';
import { newId } from '../../src/core/ids.ts';
import { largestRights } from '../../src/core/rights.ts';
import { publish } from '../firmware/fleet.ts';
import { makeCertificate } from '../support/certificates.ts';
import { copyRows, type StoredValues } from '../support/copies.ts';
import { leaveDeadLetter } from '../support/faults.ts';
import { provision } from '../support/jobs.ts';
import { present, type Service } from '../support/service.ts';

/** Rows of 64 KiB and more, and of others: more of them would take CI a minute. */
const largeRows = 200;
const manyRows = 1000;
const fieldCount = 62;
const values = Object.fromEntries(Array.from({ length: fieldCount }, (_, n) => [`field ${n}`, 'v'.repeat(990)]));
/** The default of SLIPWAY_MQTT_MAX_PAYLOAD_BYTES. */
const payloadBytes = 131_072;
/** 64 KiB of JSON that is expensive to read. */
export const nested = `[${'[],'.repeat(21_800)}[]]`;
/** The templates of custom fields. */
const idName: Record<string, string> = {
  devices: 'deviceTemplateId',
  'end-users': 'endUserTemplateId',
  organizations: 'organizationTemplateId',
};
const deleted = '2026-05-01T00:00:00.000Z';

type Row = StoredValues;

export class Filler {
  readonly #service: Service;
  readonly #file: ReturnType<typeof openSqlite>;
  /** Rows of lists that have a trash, by the path of the list. */
  readonly #trashable = new Map<string, { table: string; id: string; rows: number; changes: (n: number) => Row }>();
  readonly #made: Record<string, string> = {};

  constructor(service: Service) {
    this.#service = service;
    this.#file = openSqlite(join(service.directory, 'registry.db'));
    this.#file.pragma('foreign_keys = OFF');
  }

  close(): void {
    this.#file.close();
  }

  /** Rows like the one of `table` that `where` finds, in one transaction. */
  #copy(table: string, where: Row, rows: number, changes: (n: number) => Row): void {
    copyRows(this.#file, table, where, rows, changes);
  }

  /** Copies of an entity, live; those in the trash are made when its list is filled. */
  #copies(path: string, table: string, id: string, rows: number, changes: (n: number) => Row = () => ({})): void {
    const all = (n: number) => ({ id: newId(this.#service.accountId), ...changes(n) });
    this.#trashable.set(path, { table, id, rows, changes: all });
    this.#copy(table, { id }, rows, all);
  }

  /** Fills a list. @returns the path that reads it, and about how many bytes its page of 1,000 has at least. */
  async fill(path: string): Promise<{ url: string; bytes: number }> {
    const [account] = [`accountId=${this.#service.accountId}`];
    if (path.startsWith('/api/v1/trash/')) {
      const { table, id, rows, changes } = present(this.#trashable.get(path.replace('/trash', '')));
      this.#copy(table, { id }, rows, (n) => ({ ...changes(n), deleted }));
      return { url: `${path}?${account}`, bytes: rows * 100 };
    }
    const fill = this.#fills[path];
    if (!fill) throw new Error(`test/slow/long-list-fills.ts does not know how to fill ${path}`);
    const { url = `${path}?${account}`, bytes } = await fill();
    return { url, bytes };
  }

  async #fields(path: string, wrapper: string, of: object): Promise<void> {
    const names = Object.keys(values);
    const make = (name: string) => this.#service.create(path, wrapper, { ...of, name, fieldType: 'text' });
    const made = await Promise.all(names.map(make));
    this.#copies(`/api/v1${path}`, 'customFields', (made[0] as { id: string }).id, manyRows, (n) => ({
      name: `copy ${n} ${'n'.repeat(90)}`.slice(0, 100),
      templateId: newId(this.#service.accountId),
    }));
  }

  async #defaultTemplate(kind: string, plural: string): Promise<string> {
    const path = `/api/v1/${kind}/templates?accountId=${this.#service.accountId}&default=true`;
    const answer = (await this.#service.ok('GET', path as string)) as unknown as Record<
      string,
      { results: Array<{ id: string }> }
    >;
    return present(answer[plural]?.results[0]).id;
  }

  readonly #fills: Record<string, () => Promise<{ url?: string; bytes: number }>> = {
    '/api/v1/devices': async () => {
      const template = await this.#service.template({
        channels: Array.from({ length: 95 }, (_, n) => ({ name: `channel ${n}` })),
      });
      await this.#service.channel(template.id, 'series');
      await this.#fields('/devices/custom-fields', 'deviceField', { deviceTemplateId: template.id });
      await this.#fields('/devices/templates/custom-fields', 'deviceTemplateField', {});
      const body = { deviceTemplateId: template.id, serialNumber: 'first', ...values };
      const device = await this.#service.create('/devices', 'device', body);
      Object.assign(this.#made, { deviceTemplateId: template.id, deviceId: device.id });
      this.#copies('/api/v1/devices', 'devices', device.id, largeRows, (n) => ({ serialNumber: `copy ${n}` }));
      return { bytes: largeRows * 60_000 };
    },
    '/api/v1/organizations': async () => {
      const organizationTemplateId = await this.#defaultTemplate('organizations', 'organizationTemplates');
      await this.#fields('/organizations/custom-fields', 'organizationField', { organizationTemplateId });
      this.#made.organizationTemplateId = organizationTemplateId;
      const { id } = await this.#service.organization({ organizationTemplateId, ...values });
      this.#copies('/api/v1/organizations', 'organizations', id, largeRows);
      return { bytes: largeRows * 60_000 };
    },
    '/api/v1/end-users': async () => {
      const endUserTemplateId = await this.#defaultTemplate('end-users', 'endUserTemplates');
      this.#made.endUserTemplateId = endUserTemplateId;
      await this.#fields('/end-users/custom-fields', 'endUserField', { endUserTemplateId });
      const organization = await this.#service.organization();
      const body = { endUserTemplateId, organizationId: organization.id, ...values };
      const { id } = await this.#service.create('/end-users', 'endUser', body);
      this.#copies('/api/v1/end-users', 'endUsers', id, largeRows);
      return { bytes: largeRows * 60_000 };
    },
    '/api/v1/devices/templates': async () => {
      const template = await this.#service.template(values);
      this.#copies('/api/v1/devices/templates', 'deviceTemplates', template.id, largeRows, (n) => ({
        name: `copy ${n}`,
      }));
      return { bytes: largeRows * 60_000 };
    },
    ...Object.fromEntries(
      (['end-users', 'organizations'] as const).map((kind) => [
        `/api/v1/${kind}/templates`,
        async () => {
          const table = kind === 'end-users' ? 'endUserTemplates' : 'organizationTemplates';
          const id = await this.#defaultTemplate(kind, table);
          const name = (n: number) => ({ name: `copy ${n} ${'n'.repeat(200)}`, default: 0 });
          this.#copies(`/api/v1/${kind}/templates`, table, id, manyRows, name);
          return { bytes: manyRows * 300 };
        },
      ]),
    ),
    '/api/v1/channels/templates': async () => {
      const path = `/api/v1/channels/templates?accountId=${this.#service.accountId}`;
      const first = present((await this.#service.ok('GET', path)).channelTemplates.results[0]);
      // As many as those of hundreds of device templates.
      this.#copies('/api/v1/channels/templates', 'channelTemplates', first.id, manyRows, (n) => ({
        name: `copy ${n} ${'n'.repeat(80)}`,
        entityId: newId(this.#service.accountId),
      }));
      return { bytes: manyRows * 300 };
    },
    ...Object.fromEntries(
      ['devices', 'end-users', 'organizations', 'devices/templates'].map((kind) => [
        `/api/v1/${kind}/custom-fields`,
        async () => {
          const template = kind === 'devices/templates' ? '' : `&${idName[kind]}=${this.#made[idName[kind] ?? '']}`;
          return {
            url: `/api/v1/${kind}/custom-fields?accountId=${this.#service.accountId}${template}`,
            bytes: 10_000,
          };
        },
      ]),
    ),
    '/api/v1/account-users': async () => {
      const path = `/api/v1/account-users?accountId=${this.#service.accountId}`;
      const { id } = present((await this.#service.ok('GET', path)).accountUsers.results[0]);
      this.#copies('', 'accountUsers', id, manyRows, () => ({ userId: newId(this.#service.accountId) }));
      return { bytes: manyRows * 200 };
    },
    '/api/v1/access/mqtt-certificates': async () => {
      const { cert: certificate } = await makeCertificate({ subject: `CN=${'c'.repeat(60)}` });
      const body = { entityId: this.#made.deviceId, entityType: 'device', certificate };
      const { id } = await this.#service.create('/access/mqtt-certificates', 'mqttCertificate', body);
      this.#copies('', 'certificates', id, manyRows, (n) => ({ fingerprint: `${n}`.padStart(64, '0') }));
      return { bytes: manyRows * 500 };
    },
    '/api/v1/access/certificate-authorities': async () => {
      const { cert: certificate } = await makeCertificate({ subject: 'CN=authority', ca: true });
      const path = '/access/certificate-authorities';
      const { id } = await this.#service.create(path, 'certificateAuthority', { name: 'first', certificate });
      this.#copies('', 'certificateAuthorities', id, manyRows, (n) => ({
        fingerprint: `${n}`.padStart(64, '0'),
        name: `copy ${n}`,
      }));
      return { bytes: manyRows * 500 };
    },
    '/api/v1/enrollment-groups': async () => {
      const { deviceTemplateId } = this.#made;
      const body = { name: 'first', deviceTemplateId, proof: 'derivedKey', serialNumberPattern: 'p'.repeat(255) };
      const { id } = await this.#service.create('/enrollment-groups', 'enrollmentGroup', body);
      Object.assign(this.#made, { groupId: id });
      const path = '/api/v1/enrollment-groups';
      this.#copies(path, 'enrollmentGroups', id, manyRows, (n) => ({ name: `copy ${n}` }));
      return { bytes: manyRows * 500 };
    },
    '/api/v1/enrollment-groups/{id}/refusals': async () => {
      const refused = this.#file.prepare(
        `INSERT INTO "enrollmentRefusals" ("groupId", "accountId", "time", "serialNumber", "reason", "proven")
         VALUES (@groupId, @accountId, @deleted, @text, @text, 1)`,
      );
      const { groupId } = this.#made;
      for (let n = 0; n < 100; n += 1)
        refused.run({ deleted, accountId: this.#service.accountId, groupId, text: 't'.repeat(255) });
      return { url: `/api/v1/enrollment-groups/${groupId}/refusals?`, bytes: 100 * 500 };
    },
    '/api/v1/enrollment-groups/{id}/devices': async () => {
      const enrolled = this.#file.prepare(
        `INSERT INTO "enrollments" ("deviceId", "groupId", "accountId", "serialNumber", "enrolled", "used", "permitted")
         VALUES (@deviceId, @groupId, @accountId, @serialNumber, @deleted, 0, 0)`,
      );
      const { groupId } = this.#made;
      const { accountId } = this.#service;
      for (let n = 0; n < manyRows; n += 1)
        enrolled.run({
          deleted,
          accountId,
          groupId,
          deviceId: newId(accountId),
          serialNumber: `${n}`.padStart(255, 's'),
        });
      return { url: `/api/v1/enrollment-groups/${groupId}/devices?`, bytes: manyRows * 400 };
    },
    '/api/v1/devices/{id}/logs': async () => {
      const url = `/api/v1/devices/${this.#made.deviceId}/logs`;
      const entries = Array.from({ length: 60 }, () => ({ message: 'm'.repeat(16_000) }));
      for (let n = 0; n < 10; n += 1) await this.#service.ok('POST', url as string, { body: entries });
      return { url: `${url}?`, bytes: 600 * 16_000 };
    },
    '/api/v1/devices/{id}/support': async () => {
      const { deviceId = '' } = this.#made;
      const { accountId } = this.#service;
      const insert = this.#file.prepare(
        `INSERT INTO "supportRequests" VALUES (@id, @accountId, @deviceId, @deleted, @id, @message, @log, '[]')`,
      );
      // JSON is a space before its first bracket, too.
      const kept = { accountId, deviceId, deleted, message: 'm'.repeat(2000), log: `${' '.repeat(128 * 1024)}[]` };
      for (let n = 0; n < 100; n += 1) insert.run({ ...kept, id: newId(accountId) });
      return { url: `/api/v1/devices/${deviceId}/support?`, bytes: 100 * 128 * 1024 };
    },
    '/api/v1/refusals': async () => ({ bytes: 50 * 900 }),
    '/api/v1/devices/{id}/refusals': async () => {
      const texts = { topic: 't'.repeat(512), reason: 'r'.repeat(300), clientId: 'c'.repeat(128) };
      const refused = this.#file.prepare(
        `INSERT INTO "refusals" ("deviceId", "accountId", "time", "action", "topic", "reason", "code", "clientId", "principalType")
         VALUES (@deviceId, @accountId, @deleted, 'publish', @topic, @reason, 1, @clientId, 'device')`,
      );
      const { accountId } = this.#service;
      for (let n = 0; n < 50; n += 1) refused.run({ ...texts, deleted, accountId, deviceId: this.#made.deviceId });
      return { url: `/api/v1/devices/${this.#made.deviceId}/refusals?`, bytes: 50 * 900 };
    },
    '/api/v1/applications': async () => {
      const { id } = await this.#service.create('/applications', 'application', {
        name: 'n'.repeat(200),
        kind: 'backEnd',
      });
      this.#copies('', 'applications', id, manyRows, (n) => ({ tokenHash: `hash ${n}` }));
      return { bytes: manyRows * 300 };
    },
    '/api/v1/fleets': async () => {
      const about = { name: 'first', filter: `serialNumber ne "${'f'.repeat(3900)}"` };
      const { id } = await this.#service.create('/fleets', 'fleet', about);
      this.#copies('/api/v1/fleets', 'fleets', id, 900, (n) => ({ name: `copy ${n}` }));
      return { bytes: 900 * 4000 };
    },
    '/api/v1/devices/{id}/fleets': async () => ({
      url: `/api/v1/devices/${this.#made.deviceId}/fleets?`,
      bytes: 900 * 4000,
    }),
    '/api/v1/roles': async () => {
      const about = { name: 'first', scope: 'account', description: 'd'.repeat(200), rights: largestRights.account };
      const { id } = await this.#service.create('/roles', 'role', about);
      this.#copies('/api/v1/roles', 'roles', id, 90, (n) => ({ name: `copy ${n}` }));
      return { bytes: 90 * 1500 };
    },
    '/api/v1/tokens': async () => {
      const expiresAt = new Date(Date.now() + 86_400_000).toISOString();
      const { id } = await this.#service.create('/tokens', 'token', { name: 'n'.repeat(200), expiresAt });
      this.#copies('', 'accessTokens', id, manyRows, (n) => ({ tokenHash: `hash ${n}` }));
      return { bytes: manyRows * 300 };
    },
    '/api/v1/identity-providers': async () => {
      const redirectUris = Array.from({ length: 50 }, (_, n) => `https://app.example/${n}/${'p'.repeat(1900)}`);
      const about = { name: 'first', issuer: 'https://id.example', clientId: 'c', clientSecret: 's', redirectUris };
      const { id } = await this.#service.create('/identity-providers', 'identityProvider', about);
      this.#copies('', 'identityProviders', id, largeRows, (n) => ({ name: `copy ${n}` }));
      return { bytes: largeRows * 95_000 };
    },
    '/api/v1/bridges': async () => {
      const about = { kind: 'webhook', url: 'https://bridge.example/in' };
      for (let n = 0; n < 5; n += 1) {
        const { id } = await this.#service.create('/bridges', 'bridge', { name: `bridge ${n}`, ...about });
        this.#made.bridgeId = id;
      }
      return { bytes: 5 * 300 };
    },
    '/api/v1/bridges/{id}/dead-letters': async () => {
      const { accountId } = this.#service;
      const { deviceId = '', deviceTemplateId = '', bridgeId = '' } = this.#made;
      for (let time = 0; time < 100; time += 1) {
        const of = { id: newId(accountId), deviceId, deviceTemplateId, channel: 'channel 1', time };
        const payload = new Uint8Array(payloadBytes);
        await leaveDeadLetter(this.#service, bridgeId, 'r'.repeat(300), { ...of, payload });
      }
      return { url: `/api/v1/bridges/${bridgeId}/dead-letters?`, bytes: 100 * payloadBytes };
    },
    '/api/v1/provisioning/verifications': async () => {
      const { accountId } = this.#service;
      const insert = this.#file.prepare(
        `INSERT INTO "verifications" VALUES (@id, @accountId, @deviceId, @serialNumber, 1, 1, 1, @deleted, @id)`,
      );
      const one = { accountId, deviceId: this.#made.deviceId, serialNumber: 's'.repeat(255), deleted };
      for (let n = 0; n < manyRows; n += 1) insert.run({ ...one, id: newId(accountId) });
      return { bytes: manyRows * 400 };
    },
    '/api/v1/audit': async () => {
      const { accountId } = this.#service;
      const details = JSON.stringify({ text: 'd'.repeat(1000) });
      this.#copy('auditRecords', { accountId, event: 'login' }, manyRows, () => ({ id: newId(accountId), details }));
      return { bytes: manyRows * 1200 };
    },
    '/api/v1/provisioning/jobs': async () => {
      const job = await provision(this.#service, [
        { serialNumber: 'provisioned', deviceTemplateId: this.#made.deviceTemplateId },
      ]);
      this.#made.jobId = job.id;
      const parameters = `{"command":{"name":"blink","payload":${nested}}}`;
      const copy = () => ({ id: newId(this.#service.accountId), checksum: null, parameters, action: 'command' });
      this.#copy('jobs', { id: job.id }, largeRows, copy);
      return { bytes: largeRows * 300 };
    },
    '/api/v1/provisioning/jobs/{id}/rows': async () => {
      const { jobId = '' } = this.#made;
      const input = JSON.stringify({ values: { serialNumber: 'copy', ...values } });
      this.#copy('jobRows', { jobId }, largeRows, (n) => ({ row: n + 2, input, sealedResult: null }));
      this.#file.prepare('UPDATE "jobs" SET "total" = ? WHERE "id" = ?').run(largeRows + 1, jobId);
      return { url: `/api/v1/provisioning/jobs/${jobId}/rows?`, bytes: largeRows * 100 };
    },
    '/api/v1/firmware/packages': async () => {
      const { id } = await publish(this.#service, present(this.#made.deviceTemplateId), '1.0.0');
      this.#made.packageId = id;
      this.#copies('/api/v1/firmware/packages', 'firmwarePackages', id, manyRows, () => ({
        description: 'd'.repeat(2000),
      }));
      return { bytes: manyRows * 2000 };
    },
    '/api/v1/firmware/rollouts': async () => {
      const target = { filter: { serialNumber: 's'.repeat(1000), firmwareVersion: 'v'.repeat(1000) } };
      const body = { firmwarePackageId: this.#made.packageId, target, startAt: '2030-01-01T00:00:00Z' };
      const { id } = await this.#service.create('/firmware/rollouts', 'firmwareRollout', body);
      this.#made.rolloutId = id;
      this.#copies('', 'firmwareRollouts', id, manyRows, () => ({ state: 'finished', finished: deleted, due: null }));
      // The newest of all are others, without a target.
      return {
        url: `/api/v1/firmware/rollouts?accountId=${this.#service.accountId}&sortBy=created&sortOrder=asc`,
        bytes: manyRows * 2000,
      };
    },
    '/api/v1/firmware/rollouts/{id}/devices': async () => {
      const { rolloutId = '' } = this.#made;
      const { accountId } = this.#service;
      const insert = this.#file.prepare(
        `INSERT INTO "firmwareDeliveries" VALUES
         (@rolloutId, @deviceId, @accountId, 0, 'failed', 1, 1, @message, NULL, 1, 0, @deleted, 1, NULL, NULL, 0, 0)`,
      );
      const one = { rolloutId, accountId, deleted, message: 'm'.repeat(1000) };
      for (let n = 0; n < manyRows; n += 1) insert.run({ ...one, deviceId: newId(accountId) });
      return { url: `/api/v1/firmware/rollouts/${rolloutId}/devices?`, bytes: manyRows * 1000 };
    },
    '/api/v1/devices/{id}/firmware/history': async () => {
      const { deviceId } = this.#made;
      const { id, ...rollout } = this.#file
        .prepare<[string], Record<string, unknown>>('SELECT * FROM "firmwareRollouts" WHERE "id" = ?')
        .get(this.#made.rolloutId ?? '') as Record<string, unknown>;
      const names = Object.keys(rollout);
      const { accountId } = this.#service;
      const copy = this.#file.prepare(
        `INSERT INTO "firmwareRollouts" ("id", ${names.map((name) => `"${name}"`)}) VALUES (@id, ${names.map((name) => `@${name}`)})`,
      );
      const insert = this.#file.prepare(
        `INSERT INTO "firmwareDeliveries" VALUES
         (@rolloutId, @deviceId, @accountId, 0, 'failed', 1, 1, @message, NULL, 1, 0, @deleted, 1, NULL, NULL, 0, 0)`,
      );
      for (let n = 0; n < manyRows; n += 1) {
        const rolloutId = newId(accountId);
        copy.run({ ...rollout, id: rolloutId, target: '{}', state: 'finished', finished: deleted, due: null });
        insert.run({ rolloutId, deviceId, accountId, deleted, message: 'm'.repeat(1000) });
      }
      return { url: `/api/v1/devices/${deviceId}/firmware/history?`, bytes: manyRows * 1000 };
    },
    '/api/v1/devices/{id}/commands': async () => {
      const url = `/api/v1/devices/${this.#made.deviceId}/commands`;
      const body = `{"name":"blink","payload":${nested}}`;
      const { command } = await this.#service.ok('POST', url as '/api/v1/devices/{id}/commands', { body });
      const ended = { state: 'succeeded', finished: deleted, result: nested, lateReply: nested };
      this.#copy('commands', { id: command.id }, largeRows, () => ({ ...ended, id: newId(this.#service.accountId) }));
      return { url: `${url}?`, bytes: largeRows * 3 * 65_000 };
    },
    '/api/v4/data/{topic}': async () => {
      const topic = this.#service.topic(this.#made.deviceId ?? '', 'series');
      for (let part = 0; part < 20; part += 1) {
        const lines = Array.from({ length: 50 }, (_, n) => `${part * 50 + n},category,,${'t'.repeat(1000)}`);
        const headers = { 'content-type': 'text/csv' };
        await this.#service.ok('POST', `/api/v4/data/${topic}` as string, { body: lines.join('\n'), headers });
      }
      return { url: `/api/v4/data/${topic}?startDateTime=1970-01-01&endDateTime=1971-01-01`, bytes: 900_000 };
    },
  };
}
