import { connect } from 'node:net';
import { whileRegistryFails } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Answer, type Failure, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const post = (body: string, headers: Record<string, string> = {}) =>
  service.http('POST', '/api/v1/devices', { body, headers });

t.test('every error has its code, a message and the request id, and tells no more', async (t) => {
  const answer = await service.http('GET', '/api/v1/devices/no-such-device');
  t.equal(answer.status, 404);
  t.same(Object.keys(answer.body).sort(), ['error', 'requestId']);
  t.equal(answer.body.requestId, answer.headers.get('x-request-id'));
  t.match(answer.body.error, { code: 100, message: String, details: { length: 0 } });
});

t.test('unknown endpoints answer 404 with 100', async (t) => {
  for (const [method, path] of [
    ['GET', '/api/v1/nothing'],
    ['PATCH', '/api/v1/nothing'],
    ['GET', '/api/v2/devices'],
    ['GET', '/docs/static/nothing.js'],
  ] as const)
    t.match(await service.http(method, path), { status: 404, body: { error: { code: 100 } } }, path);
});

t.test(
  'an answer has the headers that its content needs: a page has a security policy, JSON must not be guessed',
  async (t) => {
    const data = await service.http('GET', `/api/v1/devices?accountId=${service.accountId}`);
    t.equal(data.headers.get('x-content-type-options'), 'nosniff');
    t.equal(data.headers.get('cache-control'), 'no-store');
    t.equal(data.headers.get('access-control-allow-origin'), '*');
    t.equal(data.headers.get('content-security-policy'), null);
    t.equal(data.headers.get('access-control-expose-headers'), null, 'asked by no page of another origin');
    const page = await service.http('GET', '/set-password', { token: null });
    t.equal(page.headers.get('x-content-type-options'), 'nosniff');
    t.match(page.headers.get('content-security-policy'), /default-src 'self'/);
    t.equal(page.headers.get('x-frame-options'), 'SAMEORIGIN');
  },
);

t.test('a URL that cannot be read is answered, told and counted as everything else', async (t) => {
  const counted = async () => {
    const { text } = await service.http('GET', '/metrics', { token: null });
    const [, count] = /^slipway_http_requests_total\{method="any",route="none",status="400"\} (\d+)$/m.exec(text) ?? [];
    return Number(count ?? 0);
  };
  const before = await counted();
  for (const path of ['%zz', 'x'.repeat(600)]) {
    const { status, body, headers } = await service.http('GET', `/api/v1/devices/${path}`);
    t.match({ status, body }, { status: 400, body: { error: { code: 106 } } });
    t.equal(headers.get('x-request-id'), body.requestId);
    t.equal(headers.get('x-content-type-options'), 'nosniff');
  }
  t.equal(await counted(), before + 2);
});

t.test('bodies that cannot be read get the documented error', async (t) => {
  const account = JSON.stringify(service.accountId);
  const bad = { status: 400, body: { error: { code: 106 } } };
  t.match(await post('{"accountId":'), bad, 'broken JSON');
  t.match(await post(''), bad, 'no body');
  t.match(await post('null'), bad);
  t.match(await post('[1]'), bad);
  t.match(await post('"text"'), bad);
  t.match(await post(`{"accountId":${account},"serialNumber":"x","__proto__":{"admin":true}}`), bad, '__proto__');
  t.match(await post(`{"accountId":${account},"serialNumber":"a\\u0000b"}`), bad, 'NUL');
  t.match(await post(`{"accountId":${account},"serialNumber":"\\ud800"}`), bad, 'half a surrogate pair');
  t.match(
    await post(`{"accountId":${account},"serialNumber":${'['.repeat(1000)}${']'.repeat(1000)}}`),
    bad,
    'depth 1000',
  );
  t.match(await post(`{"accountId":${account},"serialNumber":"x","latitude":1e999}`), bad, 'a number beyond numbers');
  t.match(await post(`{"x":"${'y'.repeat(5_000_000)}"}`), { status: 413, body: { error: { code: 106 } } }, '5 MB');
  t.match(await post('<xml/>', { 'content-type': 'text/xml' }), { status: 415, body: { error: { code: 106 } } });
  t.match(await post('{}', { 'content-type': 'text/plain' }), { status: 415, body: { error: { code: 106 } } });
  t.match(await service.http('GET', `/api/v1/devices?accountId=${service.accountId}`), { status: 200 }, 'still there');
});

t.test(
  'what is wrong with a body is said: where it is no JSON, of which type it must be, what may be there',
  async (t) => {
    const detailOf = async (answer: Promise<Answer<Failure>>) => {
      const { error } = (await answer).body;
      t.equal(error.code, 106);
      t.equal(error.details.length, 1, 'one thing');
      return error.details[0];
    };
    const broken: Array<[body: string, said: string]> = [
      ['{"accountId":', 'is not JSON: it ends too early'],
      ['{"a": "tok', 'is not JSON: it ends too early'],
      ['{"accountId": secret}', 'is not JSON at line 1, column 15'],
      ['{"a": 1,\n "b": [1 2],\n "c": 3}', 'is not JSON at line 2, column 10'],
      ['{"a": 1,}', 'is not JSON at line 1, column 9'],
      ["{'a': 1}", 'is not JSON at line 1, column 2'],
      ['{} {}', 'is not JSON at line 1, column 4'],
      ['{"a": 01}', 'is not JSON at line 1, column 8'],
      [`{"a": "${'x'.repeat(20_000)}" secret}`, 'is not JSON'],
      ['{"__proto__": 1}', 'has a property __proto__, or a constructor with a prototype'],
    ];
    for (const [body, message] of broken) t.strictSame(await detailOf(post(body)), { path: 'body', message });

    const types = (answer: Promise<Answer<Failure>>) => detailOf(answer).then(({ message }) => message);
    const xml = { body: '<xml/>', headers: { 'content-type': 'text/xml' } };
    t.equal(
      await types(service.http('POST', '/api/v1/devices', xml)),
      'must be one of application/json, application/x-www-form-urlencoded',
    );
    t.equal(await types(service.http('POST', '/api/v1/batch', xml)), 'must be one of application/json');
    t.match(await types(service.http('POST', '/api/v4/data/a', xml)), /^must be one of text\/csv, application\/json, /);

    const { accountId } = service;
    const retention = (retentionDays: unknown) =>
      detailOf(service.http('PUT', '/api/v1/retention', { body: { retentionDays } }));
    t.strictSame(await retention('x'), { path: 'retentionDays', message: 'must be integer or null' });
    t.strictSame(await retention(-1), { path: 'retentionDays', message: 'must be >= 0' });
    const entries = (body: unknown) => detailOf(service.http('POST', '/api/v1/devices/nothing/logs', { body }));
    t.strictSame(await entries('"hot"'), { path: 'body', message: 'must be object or array' });
    t.strictSame(await entries([{}, 1]), { path: '1', message: 'must be object' });
    const template = { accountId, entityId: 'x', entityType: 'organizationTemplate', name: 'x' };
    t.strictSame(await detailOf(service.http('POST', '/api/v1/channels/templates', { body: template })), {
      path: 'entityType',
      message: 'must be one of deviceTemplate',
    });
    const offset = '/api/v4/data/nothing?startDateTime=2026-01-31T00:00:00+02:00';
    const { device } = await service.device();
    const url = offset.replace('nothing', service.topic(device.id, '_log'));
    t.match(await detailOf(service.http('GET', url)), { path: 'startDateTime', message: /sent as %2B/ });
  },
);

t.test('a message leads with what is wrong; the sentence of the code follows', async (t) => {
  const { accountId } = service;
  const saidOf = async (answer: Promise<Answer<Failure>>) => {
    const { body } = await answer;
    return body.error?.message ?? body.message;
  };
  const make = (body: object) => saidOf(service.http('POST', '/api/v1/devices', { body: { accountId, ...body } }));
  const invalid = 'A parameter value is invalid.';
  t.equal(await make({}), `serialNumber is required. ${invalid}`);
  t.equal(await make({ serialNumber: 'S', latitude: 91 }), `latitude must be a number between -90 and 90. ${invalid}`);
  t.equal(
    await make({ serialNumber: 'S', deviceTemplateId: 'none' }),
    'deviceTemplateId does not refer to an existing entity. A referenced entity does not exist.',
  );
  t.equal(await saidOf(post('{')), `body is not JSON: it ends too early. ${invalid}`);
  const { device } = await service.device();
  const change = (headers: Record<string, string>) =>
    saidOf(service.http('PUT', `/api/v1/devices/${device.id}`, { body: { name: 'x' }, headers }));
  t.equal(
    await change({}),
    'Send the version of the entity as etag; GET gives it. The etag header is missing.',
    'no version was sent',
  );
  t.equal(
    await change({ etag: 'zz' }),
    'The entity has been changed since that version. The given version does not match the latest version.',
  );
  const login = (body: object) => saidOf(service.http('POST', '/api/v1/auth/login-user', { body, token: null }));
  t.match(await login({}), /^\w+ is required/, 'the other envelope, too');
  const requests = [{ method: 'POST', path: '/api/v1/devices', payload: { accountId, serialnumber: 'S' } }];
  const [inBatch] = await service.ok('POST', '/api/v1/batch', { body: { requests } });
  t.match(inBatch, { error: { message: /^serialnumber: did you mean serialNumber\? serialNumber is required\. / } });
});

t.test('a name that case or one letter keeps from a known one is led back to it, in bodies and queries', async (t) => {
  const { accountId } = service;
  const make = async (body: object, path = '/api/v1/devices') =>
    (await service.http('POST', path, { body: { accountId, ...body } })).body.error;
  for (const name of ['serialnumber', 'SerialNumber', 'serialNumbr', 'serialNumberr', 'serialNumper', 'seiralNumber']) {
    const { message, details, code } = await make({ [name]: 'S' });
    t.equal(message, `${name}: did you mean serialNumber? serialNumber is required. A parameter value is invalid.`);
    t.strictSame({ code, details }, { code: 106, details: [{ path: 'serialNumber', message: 'is required' }] });
  }
  for (const name of ['serial', 'serialNo', 'number', 'numberSerial', 'zz'])
    t.notMatch((await make({ [name]: 'S' })).message, /did you mean/, name);
  const both = await make({ serialNumber: 'S', serialnumber: 'S', latitude: 91 });
  t.notMatch(both.message, /did you mean/, 'the right one is there');
  const two = await make({ serialnumber: 'S', devicetemplateid: 'x' });
  t.match(two.message, /^serialnumber: did you mean serialNumber\? devicetemplateid: did you mean deviceTemplateId\? /);
  const nested = await make({ requests: [{ methid: 'GET', path: '/api/v1/devices' }] }, '/api/v1/batch');
  t.match(nested.message, /^requests\.0\.methid: did you mean method\? /);
  const query = await service.http('GET', `/api/v1/devices?accountId=${accountId}&pagesize=5&page=0`);
  t.match(query.body.error.message, /^pagesize: did you mean pageSize\? page must be >= 1/);
  const long = await make({
    ...Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`x${at}`, at])),
    latitude: 91,
  });
  t.match(long.message, /^serialNumber is required\. /, 'of many names the first are looked at');
  const hostile = await make({ ['serialNumber'.repeat(10_000)]: 1, '': 1, __proto: 1, s: 1 });
  t.match(hostile.message, /^serialNumber is required\. /);
});

t.test('no token, no answer: 401 comes before anything else is looked at', async (t) => {
  const request = { token: null, body: '{"broken' };
  t.match(await service.http('POST', '/api/v1/devices', request), { status: 401, body: { error: { code: 30 } } });
  const huge = { token: null, body: `"${'x'.repeat(2_000_000)}"` };
  t.match(await service.http('POST', '/api/v1/devices', huge), { status: 401 });
});

t.test('a foreign account looks like none', async (t) => {
  const other = 'f7a55bd4-8f8e-4b92-8b47-111111111111';
  for (const path of [
    '/devices',
    '/end-users',
    '/organizations',
    '/devices/templates',
    '/channels/templates',
    '/trash/devices',
  ])
    t.match(
      await service.http('GET', `/api/v1${path}?accountId=${other}`),
      { status: 404, body: { error: { code: 100 } } },
      path,
    );
  const body = { accountId: other, serialNumber: 'x' };
  t.match(await service.http('POST', '/api/v1/devices', { body }), { status: 404, body: { error: { code: 100 } } });
});

t.test('a body that is nested more than 32 deep is refused wherever it is sent', async (t) => {
  const nested = (levels: number) => `{"x":${'['.repeat(levels - 2)}{"y":1}${']'.repeat(levels - 2)}}`;
  const refused = { status: 400, body: { error: { code: 106, details: [{ message: /deep nesting/ }] } } };
  const { paths } = service.server.app.swagger() as { paths: Record<string, object> };
  const { appToken } = await service.create('/applications', 'application', { name: 'Nested', kind: 'endUserApp' });
  // The bodies of messages, firmware files and revocation lists are taken as they are.
  const read = Object.entries(paths).filter(([path]) => !/\/messaging\/publish\/|\/files\/\{name\}$|\/crl$/.test(path));
  // Without a token a body has 16 KiB, for validate-jwt 64 KiB.
  for (const [path, operations] of read)
    for (const method of ['POST', 'PUT'].filter((one) => one.toLowerCase() in operations))
      for (const levels of [33, 8000, 100_000]) {
        // There the body is a payload, and the topic is looked at first.
        if (path.includes('{topic}')) continue;
        const url = path.replace('{id}', 'nothing');
        const answer = await service.http(method, url, { body: nested(levels), headers: { accesstoken: appToken } });
        if (levels === 100_000 && answer.status === 413) {
          t.match(path, /\/(auth|users|association|enroll)\b/);
          continue;
        }
        const failure = answer.body.attributes ?? answer.body.error;
        t.equal(answer.status, 400, `${method} ${path} ${levels}`);
        t.match(failure, { details: [{ message: /deep nesting/ }] });
        t.match(answer.body.attributes?.errorCode ?? answer.body.error.code, /^(106|InvalidError)$/);
      }
  const device = { accountId: service.accountId, serialNumber: 'nested' };
  const post = (x: unknown) => service.http('POST', '/api/v1/devices', { body: { ...device, x } });
  t.match(await post(JSON.parse(nested(32)).x), { status: 200 });
  t.match(await post(JSON.parse(nested(33)).x), refused);
  const batch = (payload: string) =>
    service.http('POST', '/api/v1/batch', {
      body: `{"requests":[{"method":"POST","path":"/api/v1/devices","payload":${payload}}]}`,
    });
  for (const levels of [33, 100_000]) t.match(await batch(nested(levels)), refused, `a batch, ${levels}`);
});

t.test('bytes that are no HTTP are answered or cut off, and the service goes on', async (t) => {
  const { port } = new URL(service.server.url);
  for (const bytes of [
    '\x16\x03\x01\x02\x00',
    'GET / HTTP/9.9\r\n\r\n',
    `GET /${'a'.repeat(100_000)} HTTP/1.1\r\n\r\n`,
  ])
    await new Promise<void>((resolve) => {
      let answer = '';
      const socket = connect(Number(port), '127.0.0.1', () => socket.end(bytes));
      socket.on('data', (chunk) => {
        answer += chunk;
      });
      socket.on('error', () => resolve());
      socket.on('close', () => {
        t.match(
          answer,
          /^HTTP\/1\.1 4\d\d [\s\S]*x-request-id: (\S+)[\s\S]*"error":\{"code":\d+[\s\S]*"requestId":"\1"/,
          bytes.slice(0, 20),
        );
        resolve();
      });
    });
  t.match(await service.http('GET', '/openapi.json'), { status: 200 });
});

t.test('a filter with NUL is refused, one that looks like a query of the text index is only text', async (t) => {
  const list = (serialNumber: string) =>
    service.http(
      'GET',
      `/api/v1/devices?accountId=${service.accountId}&serialNumber=${encodeURIComponent(serialNumber)}`,
    );
  t.match(await list('a\0bc'), { status: 400, body: { error: { code: 106, details: [{ path: 'serialNumber' }] } } });
  for (const text of ['"abc', 'a* OR b', 'NEAR(a b)', 'serialNumber : x', '{a}', "'; --", '😀😀😀'])
    t.match(await list(text), { status: 200, body: { devices: { results: { length: 0 } } } }, text);
});

t.test('what a trash list does not offer has no effect on it, however often it is sent', async (t) => {
  for (const path of ['devices', 'end-users', 'organizations', 'devices/templates', 'organizations/templates']) {
    const url = `/api/v1/trash/${path}?accountId=${service.accountId}&expand=a&expand=b&count=x&count=y&sortBy=foo&sortBy=bar`;
    const answer = await service.http('GET', url);
    t.equal(answer.status, 200, path);
    t.equal(answer.headers.get('platform-ignored-properties'), 'expand, count, sortBy');
  }
});

t.test('an error of our own says nothing about itself but in the log', async (t) => {
  const logLines: string[] = [];
  const broken = await startService(t, { logLines });
  const answer = await whileRegistryFails(broken, 'session', new Error('SELECT secret FROM inside'), () =>
    broken.http('GET', `/api/v1/devices?accountId=${broken.accountId}`),
  );
  t.match(answer, { status: 500, body: { error: { code: -199, details: { length: 0 } }, requestId: String } });
  t.notMatch(answer.text, /secret|inside/);
  t.ok(logLines.some((line) => line.includes('SELECT secret') && line.includes(answer.body.requestId)));
});

t.end();
