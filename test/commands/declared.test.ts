/** Commands that a product declares: what it may declare, and what commands must then be. */
import { devices } from '../firmware/fleet.ts';
import { follow, rowsOf } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const interval = { type: 'integer', minimum: 1, maximum: 60 };
const report = {
  name: 'report',
  title: 'Report more often',
  description: 'How often it sends its values.',
  parameters: {
    type: 'object',
    title: 'Reports',
    properties: {
      interval: { ...interval, title: 'Interval', default: 5 },
      mode: { enum: ['eco', 'fast'] },
      night: { type: 'object', properties: { from: { type: 'string', format: 'time' } }, additionalProperties: false },
    },
    required: ['interval'],
  },
};
const reboot = { name: 'reboot', title: 'Restart', confirm: true, forCustomers: true };

/** A product with declared commands, and devices of it. */
async function product(more: object, count = 1) {
  const template = await service.create('/devices/templates', 'deviceTemplate', {
    name: service.unique('Pump'),
    ...more,
  });
  return { template, units: await devices(service, template.id, count) };
}

async function moveTo(organizationId: string, id: string): Promise<void> {
  const { device } = await service.ok('GET', `/api/v1/devices/${id}`);
  await service.ok('PUT', `/api/v1/devices/${id}`, { headers: { etag: device.version }, body: { organizationId } });
}

const path = (id: string) => `/api/v1/devices/templates/${id}`;
const send = (device: { id: string }, body: object, token = service.admin) =>
  service.http('POST', `/api/v1/devices/${device.id}/commands`, { body, token });
const refusal = (at: string) => ({ status: 400, body: { error: { code: 106, details: [{ path: at }] } } });

t.test('a product declares commands; a PUT without them leaves them', async (t) => {
  const { template, units } = await product({ commands: [report, reboot] });
  t.same(template.commands, [report, reboot], 'as they came');
  t.equal(template.commandsOnly, false);
  const put = async (version: string, body: object) =>
    (await service.ok('PUT', path(template.id), { headers: { etag: version }, body })).deviceTemplate;
  const renamed = await put(template.version, { name: service.unique('Pump') });
  t.same(renamed.commands, [report, reboot]);
  const only = await put(renamed.version, { commandsOnly: true });
  t.match(only, { commandsOnly: true, commands: [report, reboot] });
  t.same((await put(only.version, only)).commands, [report, reboot], 'a whole template may be sent back');
  const query = `accountId=${service.accountId}&default=true`;
  const { deviceTemplates } = await service.ok('GET', `/api/v1/devices/templates?${query}`);
  t.match(deviceTemplates.results, [{ commands: { length: 0 }, commandsOnly: false }]);

  const organization = await service.organization();
  const { id } = present(units[0]);
  await moveTo(organization.id, id);
  const { token } = await service.endUser(organization.id);
  const seen = await service.ok('GET', `/api/v1/devices/${id}?expand=device-template`, { token });
  const { deviceTemplate } = seen.device as unknown as { deviceTemplate: { commands: unknown } };
  t.same(deviceTemplate.commands, [report, reboot], 'a customer sees them at the device');
});

t.test('what is no declared command is refused with its path', async (t) => {
  const make = (...commands: unknown[]) =>
    service.http('POST', '/api/v1/devices/templates', {
      body: { accountId: service.accountId, name: service.unique('Bad'), commands },
    });
  const refused = async (at: string, ...commands: unknown[]) =>
    t.match(await make(...commands), refusal(at), `${at}: ${JSON.stringify(commands).slice(0, 80)}`);
  await refused('commands/0/title', { name: 'x' });
  await refused('commands/1/name', reboot, { title: 'x' });
  await refused('commands/0/title', { name: 'x', title: '' });
  await refused('commands/0/title', { name: 'x', title: 'x'.repeat(101) });
  await refused('commands/0/name', { name: '', title: 'x' });
  await refused('commands/0/name', { name: 'x'.repeat(101), title: 'x' });
  await refused('commands/0/colour', { name: 'x', title: 'x', colour: 'red' });
  await refused('commands/0/confirm', { name: 'x', title: 'x', confirm: 'yes' });
  await refused('commands/2/name', reboot, report, { ...reboot, title: 'Again' });
  await refused('commands', ...Array.from({ length: 51 }, (_, n) => ({ name: `c${n}`, title: 'x' })));
  t.match(await make(...Array.from({ length: 50 }, (_, n) => ({ name: `c${n}`, title: 'x' }))), { status: 200 });

  const schema = (parameters: unknown, at = 'commands/2/parameters') =>
    refused(at, reboot, report, { name: 'x', title: 'x', parameters });
  for (const none of ['text', null, true, 1, []]) await schema(none);
  for (const other of [{}, { type: 'string' }, { type: ['object', 'null'] }, { properties: {} }]) await schema(other);
  const within = (properties: object, more: object = {}) => ({ type: 'object', properties, ...more });
  const at = 'commands/2/parameters/properties/a';
  await schema(within({ a: { type: 'nothing' } }), `${at}/type`);
  await schema(within({ a: { minimum: 'one' } }), `${at}/minimum`);
  await schema(within({ a: 1 }), at);
  await schema({ type: 'object', properties: [] }, 'commands/2/parameters/properties');
  await schema(within({ a: { pattern: '^(a+)+$' } }), `${at}/pattern`);
  await schema(within({ a: { patternProperties: { a: {} } } }), `${at}/patternProperties`);
  await schema(within({ a: { anyOf: [{ pattern: 'x' }] } }), `${at}/anyOf/0/pattern`);
  await schema(within({ a: { $ref: 'https://example.com/schema' } }), `${at}/$ref`);
  await schema(within({ a: { $ref: '#/$defs/none' } }), `${at}/$ref`);
  await schema(within({ a: { $ref: '#/properties/%' } }), `${at}/$ref`);
  await schema(within({ a: { $dynamicRef: '#a' } }), `${at}/$dynamicRef`);
  await schema({ ...within({}), $schema: 'http://json-schema.org/draft-04/schema#' }, 'commands/2/parameters/$schema');
  await schema({ ...within({}), $id: 'https://example.com/x' }, 'commands/2/parameters/$id');
  await schema({ ...within({}), $async: true }, 'commands/2/parameters/$async');
  await schema(within({ a: { $ref: '#' } }));
  await schema(within({ a: { $ref: '#/$defs/b' } }, { $defs: { b: { items: { $ref: '#/$defs/b' } } } }), undefined);
  const towers = Array.from({ length: 40 }, (_, n) => [
    `d${n}`,
    { allOf: [{ $ref: `#/$defs/d${n + 1}` }, { $ref: `#/$defs/d${n + 1}` }] },
  ]);
  await schema(within({ a: { $ref: '#/$defs/d0' } }, { $defs: { ...Object.fromEntries(towers), d40: {} } }));
  await schema(within({ a: { description: 'x'.repeat(17_000) } }));
});

t.test('words of schemas may be names and data, and a $ref may lead to the same schema', async (t) => {
  const words = { pattern: 1, $ref: '#/x', patternProperties: {}, $id: 'x' };
  const parameters = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: {
      ...Object.fromEntries(Object.keys(words).map((name) => [name, { type: 'integer' }])),
      data: { default: words, examples: [words], enum: [words, 'other'], const: words },
      'a/b': { $ref: '#/$defs/small' },
      again: { $ref: '#/properties/a~1b' },
    },
    $defs: { small: { type: 'integer', maximum: 3 } },
    'x-order': ['a/b', { pattern: 1 }],
  };
  const { template, units } = await product({ commands: [{ name: 'words', title: 'Words', parameters }] });
  t.same(present(template.commands[0]).parameters, parameters);
  const device = present(units[0]);
  t.match(await send(device, { name: 'words', payload: { pattern: 1, $ref: 2, data: words, again: 3 } }), {
    status: 200,
  });
  t.match(await send(device, { name: 'words', payload: { $ref: 'x' } }), refusal('payload/$ref'));
  t.match(await send(device, { name: 'words', payload: { 'a/b': 4 } }), refusal('payload/a~1b'));
  t.match(await send(device, { name: 'words', payload: { again: 4 } }), refusal('payload/again'));
});

t.test('a command must be as the product declares it, whoever sends it', async (t) => {
  const { template, units } = await product({ commands: [report, reboot] });
  const device = present(units[0]);
  const sent = (payload: unknown) => send(device, { name: 'report', payload });
  t.match(await sent({ interval: 5, mode: 'eco', night: { from: '22:00:00Z' }, more: true }), {
    status: 200,
    body: { command: { payload: { interval: 5, mode: 'eco' } } },
  });
  for (const [payload, at] of [
    [{ interval: 0 }, 'payload/interval'],
    [{ interval: 61 }, 'payload/interval'],
    [{ interval: '5' }, 'payload/interval'],
    [{}, 'payload/interval'],
    [{ interval: 5, mode: 'slow' }, 'payload/mode'],
    [{ interval: 5, night: { from: 'ten' } }, 'payload/night/from'],
    [{ interval: 5, night: { until: 1 } }, 'payload/night/until'],
    [null, 'payload'],
    [undefined, 'payload'],
    ['text', 'payload'],
    [[], 'payload'],
  ] as const)
    t.match(await sent(payload), refusal(at), JSON.stringify(payload));
  const { commands } = await service.ok('GET', `/api/v1/devices/${device.id}/commands`);
  t.equal(present(commands.meta).count, 1, 'nothing of a refused one is kept');
  for (const payload of [undefined, null, { delay: 1 }, 'now'])
    t.match(await send(device, { name: 'reboot', payload }), { status: 200 }, 'without parameters anything fits');
  t.match(await send(device, { name: 'blink', payload: 7 }), { status: 200 }, 'others may be anything');

  const organization = await service.organization();
  await moveTo(organization.id, device.id);
  const { token } = await service.endUser(organization.id);
  t.match(await send(device, { name: 'report', payload: { interval: 99 } }, token), refusal('payload/interval'));
  const viewer = await service.endUser(organization.id, { roleId: 'organization:viewer' });
  t.match(await send(device, { name: 'reboot' }, viewer.token), { status: 403 }, 'forCustomers gives no right');

  const wider = { ...report, parameters: { type: 'object', properties: { interval: { ...interval, maximum: 99 } } } };
  const changed = { headers: { etag: template.version }, body: { commands: [wider], commandsOnly: true } };
  await service.ok('PUT', path(template.id), changed);
  t.match(await sent({ interval: 99 }), { status: 200 }, 'as it is declared now');
  t.match(await send(device, { name: 'reboot' }), refusal('name'));
  t.match(await send(device, { name: 'blink' }), refusal('name'));
});

t.test('a bulk command is refused for the devices whose product declares it otherwise, and for no other', async (t) => {
  const { units: strict } = await product({ commands: [report] }, 2);
  const { units: open } = await product({}, 1);
  const { units: closed } = await product({ commandsOnly: true }, 1);
  const ids = [...strict, ...open, ...closed].map(({ id }) => id);
  for (const dryRun of [true, false]) {
    const body = { action: 'command', ids, command: { name: 'report', payload: { interval: 0 } }, dryRun };
    const { job } = (await service.http('POST', '/api/v1/devices/jobs', { body })).body;
    await follow(service, job.id);
    const rows = await rowsOf(service, job.id);
    t.match(
      rows.map(({ state, errors }) => [state, errors]),
      [
        ['failed', [{ code: 106, column: 'payload/interval' }]],
        ['failed', [{ code: 106, column: 'payload/interval' }]],
        ['done', { length: 0 }],
        ['failed', [{ code: 106, column: 'name' }]],
      ],
      `dryRun: ${dryRun}`,
    );
  }
  const { commands } = await service.ok('GET', `/api/v1/devices/${present(open[0]).id}/commands`);
  t.match(commands.results, [{ name: 'report', payload: { interval: 0 } }]);
});

t.end();
