/** Devices that log in to the HTTP endpoints for firmware and publishing with their client certificate. */
import { once } from 'node:events';
import { Agent, type RequestOptions, request } from 'node:https';
import { json } from 'node:stream/consumers';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { type Made, makeAuthority, makeCertificate, registerAuthority } from '../support/certificates.ts';
import { part } from '../support/part.ts';
import { type Anything, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

let service: Service;
let template: Anything['deviceTemplate'];
t.before(async () => {
  service = await startService(t, { env: certificate(t) });
  template = await service.template({ channels: ['data'] });
});

const newDevice = () => service.create('/devices', 'device', { serialNumber: 'X', deviceTemplateId: template.id });
const register = (entityId: string, { cert }: Made) =>
  service.create('/access/mqtt-certificates', 'mqttCertificate', { entityId, entityType: 'device', certificate: cert });

/** Requests on one connection, with a client certificate if there is one. */
function caller(t: Test, shown: Made | undefined) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  return async (method: string, path: string, body = '', options: RequestOptions = {}) => {
    const identity = shown && { cert: shown.cert, key: shown.key };
    const asked = request(`${service.server.url}/api/v1${path}`, {
      ...{ method, agent, rejectUnauthorized: false, headers: { 'content-type': 'application/json' } },
      ...identity,
      ...options,
    }).end(body);
    const [answer] = await once(asked, 'response');
    return { status: answer.statusCode, body: (await json(answer)) as Anything };
  };
}

t.test('a registered certificate is the login of its device, until it is deleted', async (t) => {
  const device = await newDevice();
  const own = await makeCertificate();
  const registered = await register(device.id, own);
  const asDevice = caller(t, own);
  const offer = () => asDevice('GET', '/firmware/offer');
  t.match(await offer(), { status: 200, body: { files: { length: 0 } } });
  t.match(await asDevice('POST', `/messaging/publish/${service.topic(device.id, 'data')}`, ',temperature,21.5,'), {
    status: 200,
    body: { success: true },
  });
  const { version, id } = registered;
  await service.ok('DELETE', `/api/v1/access/mqtt-certificates/${id}`, { headers: { etag: version } });
  t.match(await offer(), { status: 401 }, 'on the same connection');
});

t.test('nobody else gets in: no certificate, an unknown one, or that of another device', async (t) => {
  const device = await newDevice();
  const own = await makeCertificate();
  await register(device.id, own);
  const status = async (shown: Made | undefined, username?: string) => {
    const headers = username && { authorization: `Basic ${Buffer.from(`${username}:`).toString('base64')}` };
    return (await caller(t, shown)('GET', '/firmware/offer', '', headers ? { headers } : {})).status;
  };
  t.equal(await status(undefined), 401);
  t.equal(await status(await makeCertificate()), 401);
  t.equal(await status(own, device.id), 200, 'the username may name the device');
  const sibling = await newDevice();
  t.equal(await status(own, sibling.id), 401);
  const { refusals } = await service.ok('GET', `/api/v1/devices/${sibling.id}/refusals`);
  t.match(refusals.results, [{ action: 'connect', reason: 'the certificate is that of another device' }]);
});

t.test('a signed URL is judged by its signature, whatever certificate the connection shows', async (t) => {
  const path = `/firmware/files/${'0'.repeat(64)}`;
  const asStranger = caller(t, await makeCertificate());
  t.match(await asStranger('GET', path), { status: 401 });
  t.match(await asStranger('GET', `${path}?offer=x&signature=y`), { status: 403 }, 'the certificate is not looked at');
});

t.test('a proven CA lets in the device that its certificate names', async (t) => {
  const device = await newDevice();
  const made = await makeAuthority();
  await registerAuthority(service, made, {}, service.admin);
  const own = await makeCertificate({ subject: `CN=${device.id}`, issuer: made });
  t.match(await caller(t, own)('GET', '/firmware/offer'), { status: 200 });
});

t.test('a token or a password counts before the certificate', async (t) => {
  const device = await newDevice();
  const own = await makeCertificate();
  await register(device.id, own);
  const asDevice = caller(t, own);
  const wrong = { headers: { authorization: `Basic ${Buffer.from(`${device.id}:wrong`).toString('base64')}` } };
  t.match(await asDevice('GET', '/firmware/offer', '', wrong), { status: 401 });
  const admin = { headers: { authorization: `Bearer ${service.admin}` } };
  t.match(await asDevice('GET', '/firmware/offer', '', admin), { status: 403 });
  t.match(await asDevice('GET', '/profile/me', '', admin), { status: 200 });
  t.match(await asDevice('GET', '/devices'), { status: 401 }, 'a device has nothing else here');
});

t.end();
