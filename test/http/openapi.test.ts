import { Validator } from '@seriousme/openapi-schema-validator';
import t from 'tap';
import { type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

t.test('the OpenAPI document is valid and names every endpoint of a kind', async (t) => {
  const document = await service.ok('GET', '/openapi.json', { token: null });
  t.equal(document.openapi, '3.1.0');
  const result = await new Validator().validate(structuredClone(document));
  t.ok(result.valid, JSON.stringify(result.errors));
  const operations = Object.entries<object>(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const kinds = ['devices', 'end-users', 'organizations', 'channels/templates'];
  for (const kind of [...kinds, ...kinds.slice(0, 3).map((name) => `${name}/templates`)])
    for (const operation of [
      `POST /api/v1/${kind}`,
      `GET /api/v1/${kind}`,
      `GET /api/v1/${kind}/{id}`,
      `PUT /api/v1/${kind}/{id}`,
      `DELETE /api/v1/${kind}/{id}`,
      `GET /api/v1/trash/${kind}`,
      `GET /api/v1/trash/${kind}/{id}`,
      `POST /api/v1/trash/${kind}/{id}/recover`,
    ])
      t.ok(operations.includes(operation), operation);
  for (const operation of [
    'POST /api/v1/auth/login-user',
    'POST /api/v1/auth/validate-jwt',
    'POST /api/v1/sessions/logout',
    'POST /api/v1/access/mqtt-credentials',
  ])
    t.ok(operations.includes(operation), operation);
});

t.test('readable pages stand at /docs and need no network', async (t) => {
  const page = await service.http('GET', '/docs/', { token: null });
  t.equal(page.status, 200);
  t.match(page.headers.get('content-type'), /text\/html/);
  t.notMatch(page.text, /(src|href)="https?:/);
  const script = /src="([^"]*swagger-ui-bundle[^"]*)"/.exec(page.text)?.[1] ?? '';
  t.equal(
    (await service.http('GET', new URL(script, `${service.server.url}/docs/`).pathname, { token: null })).status,
    200,
  );
});
