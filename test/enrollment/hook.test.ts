import { createHmac, createPrivateKey, X509Certificate } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { countStored } from '../support/stored.ts';
import { ask, claim, connectOnce, newGroup, path } from './devices.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t, {
    SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
    SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0',
  });
});

interface Question {
  headers: IncomingMessage['headers'];
  text: string;
}

/** A hook of an account, which notes what it is asked. */
async function hook(t: Test, answer: (response: ServerResponse, body: Record<string, unknown>) => void) {
  const asked: Question[] = [];
  const server: Server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    asked.push({ headers: request.headers, text });
    answer(response, JSON.parse(text));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { asked, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/enroll` };
}

const says = (body: object) => (response: ServerResponse) => void response.end(JSON.stringify(body));
const refusal = (message: RegExp) => ({ status: 403, body: { error: { code: 21, message } } });

t.test(
  'a hook is asked before anything is made, signed as Standard Webhooks, and says where the device stands',
  async (t) => {
    const organization = await service.organization();
    const template = await service.template({ channels: ['other'] });
    const said = { organizationId: organization.id, deviceTemplateId: template.id, fields: { location: 'Hook' } };
    const { asked, url } = await hook(t, says({ allow: true, ...said }));
    const group = await newGroup(service, { hookUrl: url });
    const fields = { location: 'Device', name: 'mine' };
    const { body } = await claim(service, group, { serialNumber: 'H-1', fields });
    const { device } = await service.ok('GET', `/api/v1/devices/${body.device.id}`);
    t.match(device, { ...said, fields: undefined, location: 'Hook', name: 'mine' });
    t.same(Object.keys(body.channels), ['other']);
    const { headers, text } = present(asked[0]);
    const question = { groupId: group.id, serialNumber: 'H-1', address: '127.0.0.1', certificateSubject: null, fields };
    t.same(JSON.parse(text), question);
    const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${text}`;
    const mac = createHmac('sha256', present(group.hookSecret)).update(signed).digest('base64');
    t.equal(headers['webhook-signature'], `v1,${mac}`);

    await connectOnce(service, body);
    await claim(service, group, { serialNumber: 'H-1', previousSecret: body.credential.secret });
    t.match(JSON.parse(present(asked[1]).text), { deviceId: device.id }, 'asked at every exchange');
    t.not(asked[1]?.headers['webhook-id'], headers['webhook-id']);
    await service.http('POST', '/api/v1/enroll', { token: null, body: { serialNumber: 'H-2' } });
    t.equal(asked.length, 2, 'not without the proof');
  },
);

t.test('whatever a hook does but allow, refuses, and nothing is made', async (t) => {
  const unknown = '00000000-0000-7000-8000-000000000000';
  const answers: Array<[string, (response: ServerResponse) => void, RegExp]> = [
    ['says no', says({ allow: false }), /does not allow/],
    ['says something else', says({ allow: 'true' }), /does not allow/],
    ['answers a list', says([]), /does not allow/],
    ['answers no JSON', (response) => void response.end('yes'), /answer as it must/],
    ['fails', (response) => void response.writeHead(500).end('{"allow": true}'), /answer as it must/],
    ['answers 201', (response) => void response.writeHead(201).end('{"allow": true}'), /answer as it must/],
    ['redirects', (response) => void response.writeHead(307, { location: '/enroll' }).end(), /answer as it must/],
    ['hangs up', (response) => void response.destroy(), /answer as it must/],
    ['answers 10 MB', (response) => void response.end(' '.repeat(10_000_000)), /answer as it must/],
    ['hangs', () => {}, /answer as it must/],
    ['names no organization', says({ allow: true, organizationId: unknown }), /does not exist/],
    ['names no template', says({ allow: true, deviceTemplateId: unknown }), /does not exist/],
    ['names no field', says({ allow: true, fields: { colour: 'red' } }), /does not have/],
    ['gives a date that is none', says({ allow: true, fields: { purchaseDate: 'yesterday' } }), /cannot have/],
    ['gives a text that cannot be stored', says({ allow: true, fields: { location: '\0' } }), /answer as it must/],
    ['has another form', says({ allow: true, organizationId: 7 }), /answer as it must/],
  ];
  await Promise.all(
    answers.map(async ([name, answer, reason]) => {
      const { url } = await hook(t, answer);
      const group = await newGroup(service, { hookUrl: url });
      t.match(await claim(service, group, { serialNumber: 'F-1' }), refusal(reason), name);
    }),
  );
  t.equal(countStored(service, 'devices', `"serialNumber" = 'F-1' AND "accountId" = '${service.accountId}'`), 0);
  const group = await newGroup(service, { hookUrl: 'http://127.0.0.1:9/' });
  t.match(await claim(service, group, { serialNumber: 'F-1' }), refusal(/answer as it must/), 'nobody is there');
  const { refusals } = await service.ok('GET', `/api/v1/enrollment-groups/${group.id}/refusals`);
  t.match(refusals.results, [{ serialNumber: 'F-1', reason: /hook/ }]);
});

t.test('a name that leads to this machine is not asked unless private targets are allowed', async (t) => {
  const own = await sharedService(t);
  const group = await newGroup(own, { hookUrl: 'https://localhost/enroll' });
  t.match(await claim(own, group, { serialNumber: 'G-1' }), refusal(/answer as it must/));
});

t.test('a hook is asked 50 times at once at most; others wait, and then are told to try again', async (t) => {
  let [open, most] = [0, 0];
  const { asked, url } = await hook(t, (response) => {
    open += 1;
    most = Math.max(most, open);
    response.once('close', () => {
      open -= 1;
    });
  });
  const group = await newGroup(service, { hookUrl: url, proof: 'derivedKey' });
  const answers = await Promise.all(Array.from({ length: 120 }, (_, n) => ask(service, group, `Q-${n}`)));
  t.equal(most, 50);
  const count = (status: number) => answers.filter((one) => one.status === status).length;
  t.equal(count(403) + count(503), 120);
  t.equal(count(403), asked.length);
  t.ok(count(503) >= 20, 'those without a place in time');
});

t.test('a device is not made twice by many copies that its hook is asked of', async (t) => {
  // Not before all have come: one that comes after an answer is no copy at the same time.
  let come = 0;
  const allHaveCome = new Promise<void>((resolve) => {
    const look = ({ url }: IncomingMessage) => {
      if (url === path) come += 1;
      if (come === 20) resolve();
    };
    service.server.app.server.on('request', look);
    t.teardown(() => service.server.app.server.off('request', look));
  });
  const { url } = await hook(t, (response) => {
    void allHaveCome.then(() => setTimeout(() => response.end('{"allow": true}'), 50 + Math.random() * 50));
  });
  const group = await newGroup(service, { hookUrl: url });
  const answers = await Promise.all(Array.from({ length: 20 }, () => claim(service, group, { serialNumber: 'O-1' })));
  t.equal(new Set(answers.map(({ body }) => body.device.id)).size, 1);
  t.equal(new Set(answers.map(({ body }) => body.credential.secret)).size, 1, 'they overlap');
  await connectOnce(service, present(answers.at(-1)).body);
});

t.test('of requests for several keys at once one is answered, and its certificate is for its key', async (t) => {
  const shell = openssl(t);
  const requests = Array.from({ length: 5 }, () => shell.request());
  const waiting: ServerResponse[] = [];
  const { url } = await hook(t, (response) => {
    waiting.push(response);
    if (waiting.length === requests.length) for (const one of waiting) one.end('{"allow": true}');
  });
  const issuer = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    ...{ name: service.unique('Issuer'), issuing: true },
  });
  const issuing = { issues: 'certificate', certificateAuthorityId: issuer.id };
  const group = await newGroup(service, { hookUrl: url, ...issuing });
  const answers = await Promise.all(requests.map(({ csr }) => claim(service, group, { serialNumber: 'K-1', csr })));
  const made = answers.findIndex(({ status }) => status === 200);
  const certificate = new X509Certificate(present(present(answers[made]).body.credential.certificate));
  t.ok(certificate.checkPrivateKey(createPrivateKey(present(requests[made]).key)));
  for (const [at, answer] of answers.entries()) if (at !== made) t.match(answer, refusal(/another key/));
});

t.end();
