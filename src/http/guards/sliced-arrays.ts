/**
 * An array that a caller can make long leaves in slices. A route says in its schema how many items an array has at most; where
 * it does not, the answer must come from `sendList` or `sendItems`, and is refused as a whole.
 */
import type { preSerializationHookHandler } from 'fastify';
import type { App } from '../app.ts';

/** Items that an answer may have that is made at once: some 20,000 ids or channels take a few milliseconds. */
const maxItemsAtOnce = 20_000;

interface Schema {
  type?: string | string[];
  maxItems?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  content?: Record<string, { schema: Schema }>;
}

/** Call it before the routes are mounted. */
export function sliceArrays(app: App): void {
  app.addHook('onRoute', (route) => {
    const answers = Object.entries((route.schema?.response ?? {}) as Record<string, Schema>);
    const [place] = answers.flatMap(([status, schema]) => (status.startsWith('2') ? longArrays(schema, '') : []));
    if (place === undefined) return;
    const message = `${route.method} ${route.url} answers${place}, an array without maxItems, as a whole: use sendList or sendItems, or state maxItems.`;
    const refuse: preSerializationHookHandler<unknown> = (_request, reply, payload, done) => {
      if (reply.statusCode < 300) throw new Error(message);
      done(null, payload);
    };
    route.preSerialization = [route.preSerialization ?? [], refuse].flat();
  });
}

/** Where a schema has arrays that are not bounded. */
function longArrays(schema: Schema, path: string): string[] {
  const { items, properties = {}, additionalProperties, content = {}, maxItems = Number.POSITIVE_INFINITY } = schema;
  const isArray = [schema.type].flat().includes('array');
  if (isArray && maxItems > maxItemsAtOnce) return [path || ' an array'];
  const choices = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [
    ...Object.values(content).flatMap((one) => longArrays(one.schema, path)),
    ...Object.entries(properties).flatMap(([name, one]) => longArrays(one, path ? `${path}.${name}` : ` ${name}`)),
    ...(typeof additionalProperties === 'object' ? longArrays(additionalProperties, `${path}.*`) : []),
    ...choices.flatMap((one) => longArrays(one, path)),
    ...(items ? longArrays(items, `${path}[]`) : []),
  ];
}
