/**
 * An array that a caller can make long leaves in slices. A route says in its schema how many items an array has at most; where
 * it does not, the schema must be `streamed`, which only `sendList` and `sendItems` answer.
 */
import { isStreamed } from '../answers/streamed-list.ts';
import type { App } from '../app.ts';

/** Items that an answer may have that is made at once: some 20,000 ids or channels take a few milliseconds. */
const maxItemsAtOnce = 20_000;

interface Schema {
  type?: string | string[];
  maxItems?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  patternProperties?: Record<string, Schema>;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  content?: Record<string, { schema: Schema }>;
}

/** Call it before the routes are mounted. @throws Error, when a route is mounted, that says which array is not bounded. */
export function sliceArrays(app: App): void {
  app.addHook('onRoute', ({ method, url, schema }) => {
    const answers = Object.entries((schema?.response ?? {}) as Record<string, Schema>);
    for (const [status, answer] of answers) {
      const [place] = status.startsWith('2') ? longArrays(answer, '') : [];
      if (place === undefined) continue;
      throw new Error(
        `${method} ${url} answers${place}, an array without maxItems, as a whole: use streamed, or state maxItems.`,
      );
    }
  });
}

/** Where a schema has arrays that are not bounded. */
function longArrays(schema: Schema, path: string): string[] {
  if (isStreamed(schema)) return [];
  const { items, properties = {}, patternProperties = {}, additionalProperties, content = {} } = schema;
  const { maxItems = Number.POSITIVE_INFINITY } = schema;
  const isArray = [schema.type].flat().includes('array');
  if (isArray && maxItems > maxItemsAtOnce) return [path || ' an array'];
  const choices = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [
    ...Object.values(content).flatMap((one) => longArrays(one.schema, path)),
    ...Object.entries(properties).flatMap(([name, one]) => longArrays(one, path ? `${path}.${name}` : ` ${name}`)),
    ...Object.values(patternProperties).flatMap((one) => longArrays(one, `${path}.*`)),
    ...(typeof additionalProperties === 'object' ? longArrays(additionalProperties, `${path}.*`) : []),
    ...choices.flatMap((one) => longArrays(one, path)),
    ...(items ? longArrays(items, `${path}[]`) : []),
  ];
}
