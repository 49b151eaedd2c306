/**
 * A client with types made from the OpenAPI document of the service: lists, creates, reads and changes a device, deletes
 * and recovers it. `paths` comes from `npx openapi-typescript http://localhost:8080/openapi.json -o api.d.ts`.
 */
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

type Device = components['schemas']['Device'];

const [baseUrl = 'http://localhost:8080', emailAddress = '', password = '', accountId = ''] = process.argv.slice(2);

/** The data of a response. The error body says what is wrong and where. */
function dataOf<T>({ data, error, response }: { data?: T; error?: unknown; response: Response }): T {
  if (data === undefined) throw new Error(`${response.status} ${JSON.stringify(error)}`);
  return data;
}

const anonymous = createClient<paths>({ baseUrl });
const login = dataOf(await anonymous.POST('/api/v1/auth/login-user', { body: { emailAddress, password, accountId } }));
if (!('jwt' in login)) throw new Error('This person has a second factor. Continue with mfa-login-user.');
const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${login.jwt}` } });

const before = dataOf(await client.GET('/api/v1/devices', { params: { query: { accountId } } })).devices;
const created = dataOf(
  await client.POST('/api/v1/devices', {
    params: { header: { 'Idempotency-Key': crypto.randomUUID() } },
    body: { accountId, serialNumber: 'SN-000042' },
  }),
).device;
const path = { id: created.id };
const read: Device = dataOf(await client.GET('/api/v1/devices/{id}', { params: { path } })).device;
const changed = dataOf(
  await client.PUT('/api/v1/devices/{id}', {
    params: { path, header: { etag: read.version } },
    body: { firmwareVersion: '1.4.2' },
  }),
).device;
// Somebody who has read the version before the change cannot overwrite it.
const stale = await client.PUT('/api/v1/devices/{id}', {
  params: { path, header: { etag: read.version } },
  body: { firmwareVersion: '1.0.0' },
});
const deleted = dataOf(
  await client.DELETE('/api/v1/devices/{id}', { params: { path, header: { etag: changed.version } } }),
).device;
const recovered = dataOf(
  await client.POST('/api/v1/trash/devices/{id}/recover', { params: { path, header: { etag: deleted.version } } }),
).device;

const state: 'defined' | 'activated' | 'associated' | 'reserved' = recovered.provisioningState;
process.stdout.write(
  `${JSON.stringify({
    before: before.meta?.count,
    firmwareVersion: changed.firmwareVersion,
    stale: [stale.response.status, stale.error?.error.code],
    deleted: deleted.deleted !== undefined,
    recovered: recovered.deleted === undefined,
    state,
  })}\n`,
);
