/** No route can answer a long array as a whole. */
import Fastify from 'fastify';
import { type TSchema, Type } from 'typebox';
import { streamed } from '../../src/http/answers/streamed-list.ts';
import type { App } from '../../src/http/app.ts';
import { sliceArrays } from '../../src/http/guards/sliced-arrays.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test(
  'a route whose answer has an array without maxItems cannot be mounted, and the error says what to do',
  async (t) => {
    const app = Fastify() as unknown as App;
    t.teardown(() => app.close());
    sliceArrays(app);
    const answer = (options: { maxItems?: number }) =>
      Type.Object({ things: Type.Object({ results: Type.Array(Type.String(), options) }) });
    const mount = (url: string, schema: TSchema, status = 200) => {
      app.get(url, { schema: { response: { [status]: schema } } }, (_, reply) => reply.send());
    };
    t.throws(() => mount('/things', answer({})), {
      message:
        'GET /things answers things.results, an array without maxItems, as a whole: use streamed, or state maxItems.',
    });
    t.throws(() => mount('/many', answer({ maxItems: 1_000_000 })));
    t.throws(() => mount('/records', Type.Record(Type.String(), Type.Array(Type.String()))));
    mount('/some', answer({ maxItems: 2 }));
    mount('/sent', streamed(answer({})));
    mount('/missing', answer({}), 404);
  },
);

t.end();
