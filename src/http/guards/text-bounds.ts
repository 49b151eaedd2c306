/** Every text that a caller sends has a maximum: that of its schema, or this one. */
import type { FastifySchema } from 'fastify';
import type { App } from '../app.ts';

/** Characters of a text whose schema says nothing of its length. */
const maxTextLength = 8192;

type Schema = Record<string, unknown>;

/** The keywords whose values are schemas: one, a list, or one by name. */
const parts = ['items', 'additionalProperties', 'anyOf', 'oneOf', 'allOf'];
const sent = ['body', 'querystring', 'params', 'headers'] as const satisfies ReadonlyArray<keyof FastifySchema>;

/** Gives the schemas of all routes mounted after it their bounds. */
export function boundTexts(app: App): void {
  const known = new WeakMap<object, object>();
  app.addHook('onRoute', (route) => {
    if (!route.schema) return;
    const schema: FastifySchema = { ...route.schema };
    for (const part of sent) if (schema[part]) schema[part] = bounded(schema[part], known);
    route.schema = schema;
  });
}

/** The same schema object always becomes the same one. */
function bounded(value: unknown, known: WeakMap<object, object>): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const done = known.get(value);
  if (done) return done;
  if (Array.isArray(value)) return value.map((one) => bounded(one, known));
  const schema: Schema = { ...value };
  known.set(value, schema);
  for (const part of parts) if (part in schema) schema[part] = bounded(schema[part], known);
  for (const part of ['properties', 'patternProperties'])
    if (part in schema)
      schema[part] = Object.fromEntries(
        Object.entries(schema[part] as Schema).map(([name, property]) => [name, bounded(property, known)]),
      );
  if (isEndless(schema)) schema.maxLength = maxTextLength;
  return schema;
}

function isEndless({ type, maxLength, const: only, enum: some, format }: Schema): boolean {
  const isText = [type].flat().includes('string');
  return isText && maxLength === undefined && only === undefined && some === undefined && format !== 'binary';
}
