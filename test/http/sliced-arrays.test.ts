/** No route can answer a long array as a whole. */
import Fastify from 'fastify';
import t from 'tap';
import { Type } from 'typebox';
import type { App } from '../../src/http/app.ts';
import { sliceArrays } from '../../src/http/guards/sliced-arrays.ts';

t.test('an array without maxItems is refused where a handler returns it, and the error says what to do', async (t) => {
  const app = Fastify() as unknown as App;
  t.teardown(() => app.close());
  sliceArrays(app);
  const all = () => ({ things: { results: ['one', 'two'] } });
  const answer = (options: { maxItems?: number }) =>
    Type.Unsafe<unknown>(Type.Object({ things: Type.Object({ results: Type.Array(Type.String(), options) }) }));
  app.get('/things', { schema: { response: { 200: answer({}) } } }, all);
  app.get('/some', { schema: { response: { 200: answer({ maxItems: 2 }) } } }, all);
  app.get('/many', { schema: { response: { 200: answer({ maxItems: 1_000_000 }) } } }, all);
  app.get('/sent', { schema: { response: { 200: answer({}) } } }, (_, reply) =>
    reply.type('application/json').send('[]'),
  );
  app.get('/missing', { schema: { response: { 200: answer({}), 404: Type.Unknown() } } }, (_, reply) =>
    reply.status(404).send({}),
  );
  const refused = await app.inject('/things');
  t.equal(refused.statusCode, 500);
  t.equal(
    refused.json().message,
    'GET /things answers things.results, an array without maxItems, as a whole: use sendList or sendItems, or state maxItems.',
  );
  t.match(
    await Promise.all(['/many', '/some', '/sent', '/missing'].map((url) => app.inject(url))),
    [500, 200, 200, 404].map((statusCode) => ({ statusCode })),
  );
});
