/** The table of limits: what the configuration, the documentation, /usage and /metrics say of it, and what enforces it. */
import { readFileSync } from 'node:fs';
import { readConfig } from '../../src/core/config.ts';
import type { Limit } from '../../src/core/limits/row.ts';
import { limits } from '../../src/core/limits/table.ts';
import { part } from '../support/part.ts';
import { type Entity, type List, type Made, present, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

/** Each test reaches one of them, in an account of its own. */
const low = {
  SLIPWAY_MAX_CHANNEL_TEMPLATES: '5',
  SLIPWAY_MAX_CUSTOM_FIELDS: '6',
  SLIPWAY_MAX_END_USERS_PER_PERSON: '3',
  SLIPWAY_MAX_VALUE_BYTES: '4096',
};
const page = readFileSync(new URL('../../docs/limits.md', import.meta.url), 'utf8');

/** A row of docs/limits.md. */
const line = ({ variable, default: fallback, unit, per, about }: Limit) =>
  `| \`${variable}\` | \`${fallback}\` ${unit} | ${per} | ${about} |`;

t.test('docs/limits.md has a row for every limit, and no other', async (t) => {
  const rows = page.split('\n').filter((text) => text.startsWith('| `'));
  t.strictSame(rows, limits.map(line));
});

t.test('every limit is a setting: its default, its range, and 0 only where it can be switched off', async (t) => {
  t.equal(new Set(limits.map(({ variable }) => variable)).size, limits.length);
  for (const { name, variable, default: fallback, min, max, off } of limits) {
    t.equal(readConfig({}).limits[name], fallback);
    t.equal(readConfig({ [variable]: String(max) }).limits[name], max);
    for (const wrong of [max + 1, ...(min > 1 ? [min - 1] : []), ...(off ? [] : [0])])
      t.throws(() => readConfig({ [variable]: String(wrong) }), { message: new RegExp(`^${variable} must be `) });
    if (off) t.equal(readConfig({ [variable]: '0' }).limits[name], 0);
  }
});

/**
 * Limits that add nothing to the sum below, by the reason that their rows give. What connections have besides is left out too,
 * since it ends with them and grows with their number: unsent bytes, and 4 MiB a client and 32 MiB an account of messages that
 * wait for an acknowledgement. docs/limits.md says that connections come on top.
 */
const uncounted: Record<string, string> = {
  'on disk': `
    channelTemplates customFields roles accessTokens endUsersPerPerson valueBytes firmwareFileBytes firmwareBytes
    firmwareRollouts deviceCommands commands commandBytes jobs jobRows jobRowBytes auditRecords verifications refusals
    messagesBytes accountMessagesBytes sessions idempotencyKeys idempotentBytes mqttRetained mqttRetainedBytes`,
  'of a connection': `
    httpConnectionsPerAddress mqttConnections mqttConnectionsPerAddress mqttConnectionsPerDevice
    mqttConnectionsPerPrincipal mqttPacketBytesBeforeConnect mqttSubscriptions`,
  'of a request': 'httpBodyBytes',
  'of a message': 'mqttPayloadBytes mqttPropertyBytes mqttPayloadPoints mqttPayloadDepth mqttTopicLevels',
  'a rate': `
    httpRate loginFailuresPerIdentity loginFailuresPerAddress mqttConnectRate mqttFailedConnectsPerAddress
    mqttFailedConnectsPerPrincipal mqttPublishRate mqttByteRate mqttPointRate mqttRefusals`,
  'a time': 'mqttConnectTimeout mqttKeepalive mqttSessionExpiry',
  'in mqttQueueBytes': 'mqttQueue',
};

t.test('each limit counts in the sum of memory, or is known to add nothing to it', async (t) => {
  const found: Record<string, string[]> = {};
  for (const { name, memory } of limits as readonly Limit[])
    if (typeof memory === 'string') found[memory] = [...(found[memory] ?? []), name];
  for (const [reason, names] of Object.entries(uncounted))
    t.same(found[reason]?.toSorted(), names.trim().split(/\s+/).toSorted(), reason);
  t.same(Object.keys(found).toSorted(), Object.keys(uncounted).toSorted());
});

t.test(
  'what an account can make the service keep in memory fits into a machine of 2 GB, each limit at its default',
  async (t) => {
    /** The process with its databases and caches, without anybody's data. */
    const ground = 150_000_000;
    const kept = limits.filter(({ memory }) => typeof memory === 'number');
    for (const { name, default: most, per } of kept) {
      t.ok(most > 0, `${name} has a bound`);
      t.ok(['account', 'service'].includes(per), `${name} counts all of an account`);
    }
    for (const { name, memory } of limits) {
      if (typeof memory === 'number' || !memory.startsWith('in ')) continue;
      t.ok(
        kept.some((other) => `in ${other.name}` === memory),
        `${name} is counted elsewhere`,
      );
    }
    const sum = kept.reduce((bytes, { default: most, memory }) => bytes + most * Number(memory), ground);
    t.ok(sum <= 2 * 1024 ** 3, `${Math.round(sum / 1e6)} MB`);
  },
);

t.test('an account sees its own use of every limit, and nothing of others; /metrics has the highest', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_MAX_CHANNEL_TEMPLATES: '7' } });
  const other = await service.account();
  for (const count of [2, 5]) await service.template({ channels: Array.from({ length: count }, (_, n) => `c${n}`) });
  const { usage } = await service.ok('GET', '/api/v1/usage');
  const row = (state: Made<'usage'>, name: string) => state.limits.find((limit) => limit.name === name);
  const channels = {
    name: 'channelTemplates',
    variable: 'SLIPWAY_MAX_CHANNEL_TEMPLATES',
    limit: 7,
    used: 5,
    unit: 'items',
    per: 'device template',
  };
  t.strictSame(row(usage, 'channelTemplates'), channels);
  t.match(row(usage, 'valueBytes'), { limit: 65_536, used: null });
  t.strictSame(
    usage.limits.map((limit) => limit.name),
    limits.flatMap(({ name, per }) => ((per as string) === 'service' ? [] : name)),
  );
  const { usage: others } = await service.ok('GET', '/api/v1/usage', { token: other.admin });
  t.strictSame(row(others, 'channelTemplates'), { ...channels, used: 0 });
  for (const state of [usage, others])
    t.strictSame(
      Object.keys(state).filter((name) => /disk|free|total/i.test(name)),
      ['diskBytes', 'diskSharePercent', 'diskShareBytes'],
    );
  const { text } = await service.http('GET', '/metrics', { token: null });
  t.match(text, /^slipway_limit\{limit="channelTemplates"\} 7$/m);
  t.match(text, /^slipway_limit_highest_use\{limit="channelTemplates"\} 5$/m);
});

t.test('channel templates of a device template: the limit holds for creating, recovering and races', async (t) => {
  const service = await sharedService(t, low);
  const { accountId } = service;
  const template = await service.template({ channels: [] });
  const create = (name: string) =>
    service.http('POST', '/api/v1/channels/templates', {
      body: { accountId, entityId: template.id, entityType: 'deviceTemplate', name },
    });
  const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => create(`c${n}`)));
  const made = answers.filter(({ status }) => status === 200).map(({ body }) => body.channelTemplate);
  t.equal(made.length, 5);
  const refused = {
    status: 400,
    body: {
      error: { code: 106, details: [{ path: 'entityId', message: /SLIPWAY_MAX_CHANNEL_TEMPLATES.*at most 5/ }] },
    },
  };
  for (const answer of answers.filter(({ status }) => status !== 200)) t.match(answer, refused);

  const first = present(made[0]);
  const gone = await service.ok('DELETE', `/api/v1/channels/templates/${first.id}`, {
    headers: { etag: first.version },
  });
  t.equal((await create('another')).status, 200);
  const recover = await service.http('POST', `/api/v1/trash/channels/templates/${first.id}/recover`, {
    headers: { etag: gone.channelTemplate.version },
  });
  t.match(recover, refused);
  const shown = await service.ok('GET', `/api/v1/devices/templates/${template.id}`);
  t.equal(shown.deviceTemplate.channelTemplates.filter((one) => !one.serviceTopic).length, 5);
});

t.test('custom fields of every kind: the limit holds for creating, recovering and races', async (t) => {
  const service = await sharedService(t, low);
  const { accountId } = service;
  const kinds = [
    ['devices', 'deviceTemplateId', 'deviceTemplates'],
    ['end-users', 'endUserTemplateId', 'endUserTemplates'],
    ['organizations', 'organizationTemplateId', 'organizationTemplates'],
    ['devices/templates', undefined, undefined],
  ] as const;
  for (const [kind, property, plural] of kinds) {
    const list = plural && (await service.ok('GET', `/api/v1/${kind}/templates?accountId=${accountId}`));
    const templateId = plural && list?.[plural].results[0].id;
    const create = (name: string) =>
      service.http('POST', `/api/v1/${kind}/custom-fields`, {
        body: { accountId, ...(property && { [property]: templateId }), name, fieldType: 'string' },
      });
    const answers = await Promise.all(Array.from({ length: 10 }, (_, n) => create(`f${n}`)));
    const made = answers
      .filter(({ status }) => status === 200)
      .map(({ body }) => Object.values(body)[0] as Entity) as List<Entity>;
    t.equal(made.length, 6, kind);
    const refused = {
      status: 400,
      body: { error: { code: 106, details: [{ message: /SLIPWAY_MAX_CUSTOM_FIELDS/ }] } },
    };
    for (const answer of answers.filter(({ status }) => status !== 200)) t.match(answer, refused);
    const path = `${kind}/custom-fields/${made[0].id}`;
    await service.ok('DELETE', `/api/v1/${path}`, { headers: { etag: made[0].version } });
    t.equal((await create('another')).status, 200);
    const recover = { headers: { etag: made[0].version } };
    t.match(await service.http('POST', `/api/v1/trash/${path}/recover`, recover), refused, kind);
  }
});

t.test('the values of one entity together: refused beyond the limit, whichever way they come', async (t) => {
  const service = await sharedService(t, low);
  const { accountId } = service;
  const template = await service.template({ channels: [] });
  const names = ['a', 'b', 'c', 'd', 'e', 'f'];
  for (const name of names)
    await service.ok('POST', '/api/v1/devices/custom-fields', {
      body: { accountId, deviceTemplateId: template.id, name, fieldType: 'text' },
    });
  const of = (length: number) => Object.fromEntries(names.map((name) => [name, 'x'.repeat(length)]));
  const refused = { status: 400, body: { error: { code: 106, details: [{ message: /SLIPWAY_MAX_VALUE_BYTES/ }] } } };
  const body = { accountId, deviceTemplateId: template.id, serialNumber: '1' };
  t.match(await service.http('POST', '/api/v1/devices', { body: { ...body, ...of(1000) } }), refused);
  const { device } = await service.ok('POST', '/api/v1/devices', { body: { ...body, ...of(600) } });
  const put = (values: object, { id, version }: Record<'id' | 'version', string>) =>
    service.http('PUT', `/api/v1/devices/${id}`, { headers: { etag: version }, body: values });
  t.match(await put({ a: 'x'.repeat(1000) }, device), refused);
  const shorter = await put({ a: 'x'.repeat(10) }, device);
  t.equal(shorter.status, 200);
  t.equal((await put({ b: 'x'.repeat(1000) }, shorter.body.device)).status, 200);
});

t.test('end-users of one person: the limit holds for an admin, for the person, and for recovering', async (t) => {
  const service = await sharedService(t, low);
  const { accountId } = service;
  const home = await service.organization();
  const { endUser, token } = await service.endUser(home.id);
  const { userId, endUserTemplateId } = endUser;
  const refused = {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'userId', message: /SLIPWAY_MAX_END_USERS_PER_PERSON/ }] } },
  };
  const place = async () => {
    const { id: organizationId } = await service.organization();
    return service.http('POST', '/api/v1/end-users', {
      body: { accountId, organizationId, endUserTemplateId, userId },
    });
  };
  const second = await place();
  t.equal(second.status, 200);
  const own = () =>
    service.http('POST', '/api/v1/organizations', {
      token,
      body: { accountId, name: 'Own', parentId: home.id, endUserTemplateId },
    });
  t.equal((await own()).status, 200);
  t.match(await place(), refused);
  t.match(await own(), refused, 'a person who creates organizations gets no more either');

  const { id, version } = second.body.endUser;
  const gone = await service.ok('DELETE', `/api/v1/end-users/${id}`, { headers: { etag: version } });
  t.equal((await place()).status, 200);
  const recover = await service.http('POST', `/api/v1/trash/end-users/${id}/recover`, {
    headers: { etag: gone.endUser.version },
  });
  t.match(recover, refused);
});

t.end();
