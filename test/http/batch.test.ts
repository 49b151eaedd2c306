import t from 'tap';
import { type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

const batch = (requests: object[], request: object = {}, query = '') =>
  service.http('POST', `/api/v1/batch${query}`, { body: { requests }, ...request });

t.test('answers come in order, each with the rights of the caller', async (t) => {
  const { device } = await service.device();
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  const path = `/api/v1/devices/${device.id}`;
  const requests = [
    { method: 'GET', path },
    { method: 'PUT', path, payload: { name: 'batched' }, headers: { ETag: version } },
    { method: 'PUT', path, payload: { name: 'again' }, headers: { etag: version } },
    { method: 'GET', path: `https://api.example.com${path}?expand=account` },
    { method: 'GET', path: '/api/v1/nothing' },
  ];
  t.match((await batch(requests)).body, [
    { device: { id: device.id, name: null } },
    { device: { name: 'batched' } },
    { error: { code: 108 } },
    { device: { name: 'batched', account: { id: service.accountId } } },
    { error: { code: 100 } },
  ]);
  const { token } = await service.endUser((await service.organization()).id);
  const theirs = await batch(
    [{ method: 'GET', path, headers: { authorization: `Bearer ${service.admin}` } }],
    { token },
    '?status=true',
  );
  t.match(
    theirs.body,
    [{ status: 404, body: { error: { code: 100 } } }],
    'headers of a sub-request change nothing about the caller',
  );
});

t.test('limits: 50 requests, no batch in a batch, only this API', async (t) => {
  const request = { method: 'GET', path: '/api/v1/nothing' };
  t.equal((await batch(Array(50).fill(request))).body.length, 50);
  t.match(await batch(Array(51).fill(request)), { status: 400, body: { error: { code: 106 } } });
  t.match(await batch([{ method: 'PATCH', path: '/api/v1/x' }]), { status: 400 });
  t.same((await batch([])).body, []);
  const nested = { method: 'POST', path: '/api/v1/b%61tch', payload: { requests: [request] } };
  const answers = await batch(
    [
      { ...nested, path: '/api/v1/batch' },
      nested,
      { method: 'GET', path: '/docs/' },
      { method: 'GET', path: 'http://' },
    ],
    {},
    '?status=true',
  );
  for (const answer of answers.body) t.ok(answer.status >= 400 && answer.status < 500, JSON.stringify(answer));
});
