/**
 * An id in capitals is the same id (RFC 9562, 4). Paths, queries and bodies get the form in which ids are kept, before anything
 * else reads them: properties and parameters are known for ids by their names.
 */
import type { preValidationHookHandler } from 'fastify';
import { canonicalId } from '../core/ids.ts';
import { canonicalTopic } from '../core/topics.ts';
import type { App } from './app.ts';
import { isObject, type NamedSchema } from './schema-names.ts';

const idName = /^ids?$|Ids?$/;
/** Ids of others, whose letters are theirs. */
const foreign: ReadonlySet<string> = new Set(['clientId']);
/** What a job or a rollout filters by has the names of the parameters of a list. */
const filterName = 'filter';

/** A URL with the ids of its path and its parameters in one form. */
export function canonicalUrl(url: string): string {
  if (!/[A-F]/.test(url)) return url;
  const [, path = '', query = ''] = /^([^?]*)(\?.*)?$/s.exec(url) ?? [];
  const segments = path.split('/');
  // A file of a package and a channel may have any name.
  const isNamed = (at: number) => segments[at - 1] === 'files' || segments[at - 2] === 'd';
  const inPath = segments.map((one, at) => (isNamed(at) ? one : canonicalId(one))).join('/');
  return (
    inPath +
    query.replace(/(?<=[?&])([^=&]+)=([^&]*)/g, (_, name: string, value: string) => {
      return `${name}=${isOurs(name) ? value.split(',').map(canonicalId).join(',') : value}`;
    })
  );
}

/** Gives the ids in bodies and topics of all routes mounted after it their form. */
export function lowerIds(app: App): void {
  app.addHook('onRoute', (route) => {
    if (route.url.endsWith('*')) route.preValidation = [lowerTopic, ...[route.preValidation ?? []].flat()];
    const schema = route.schema?.body as NamedSchema | undefined;
    if (!schema) return;
    const lower: preValidationHookHandler = ({ body }, _, done) => {
      lowerIn(body, [schema]);
      done();
    };
    route.preValidation = [lower, ...[route.preValidation ?? []].flat()];
  });
}

/** A topic in a path may be encoded, slashes too. */
const lowerTopic: preValidationHookHandler = ({ params }, _, done) => {
  const named = params as { '*'?: string };
  if (named['*'] !== undefined) named['*'] = canonicalTopic(named['*']);
  done();
};

function isOurs(name: string): boolean {
  return idName.test(name) && !foreign.has(name);
}

function lowerIn(value: unknown, schemas: readonly NamedSchema[]): void {
  const branches = schemas.flatMap(({ anyOf = [], oneOf = [], allOf = [], ...one }) => [
    one,
    ...anyOf,
    ...oneOf,
    ...allOf,
  ]);
  if (Array.isArray(value)) {
    const items = branches.flatMap((branch) => branch.items ?? []);
    if (items.some((one) => one.properties)) for (const one of value) lowerIn(one, items);
  } else if (isObject(value))
    for (const { properties = {} } of branches)
      for (const [name, schema] of Object.entries(properties)) {
        if (!Object.hasOwn(value, name)) continue;
        if (isOurs(name)) value[name] = lowered(value[name]);
        else if (name === filterName) lowerFilter(value[name]);
        else lowerIn(value[name], [schema]);
      }
}

function lowerFilter(filter: unknown): void {
  if (!isObject(filter)) return;
  for (const name of Object.keys(filter)) if (isOurs(name)) filter[name] = lowered(filter[name]);
}

function lowered(value: unknown): unknown {
  if (typeof value === 'string') return canonicalId(value);
  return Array.isArray(value) ? value.map((one) => (typeof one === 'string' ? canonicalId(one) : one)) : value;
}
