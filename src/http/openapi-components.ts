/**
 * The published form of the OpenAPI document: what is in it more than once becomes a named component, so that
 * generated clients have a type `Device` and the document stays small. Nothing is lost: with every reference resolved it is
 * the document that the routes make.
 */
import { singular } from './operation-ids.js';

type Json = unknown;
type Tree = { [name: string]: Json };

/** Characters of JSON from which a repeated part is worth a name. */
const minimum = 60;

/** The document with named schemas, responses, headers and parameters. The argument is not changed. */
export function nameComponents(document: object): object {
  const copy = structuredClone(document) as Tree;
  const components = asTree(copy.components);
  const names = new Names(components);
  for (const [, operation] of operationsOf(copy)) {
    nameBodies(operation, names);
    if (operation.parameters)
      operation.parameters = asList(operation.parameters).map((one) =>
        names.refer('parameters', one, upper(String(asTree(one).name))),
      );
    const responses = asTree(operation.responses);
    for (const [status, response] of Object.entries(responses)) {
      const headers = asTree(asTree(response).headers);
      for (const [name, header] of Object.entries(headers))
        headers[name] = names.refer('headers', header, pascal(name));
      if (Number(status) >= 400)
        responses[status] = names.refer('responses', response, errorName(status, asTree(operation['x-codes'])));
    }
  }
  copy.components = components;
  return copy;
}

/** Names of components; the same name for the same part, and another for one that differs. */
class Names {
  readonly #components: Tree;
  readonly #known = new Map<string, string>();

  constructor(components: Tree) {
    this.#components = components;
  }

  /** A reference to `part` under `name`; short parts stay where they are. */
  refer(section: string, part: Json, name: string, other = `${name}2`): Json {
    const text = JSON.stringify(part) ?? '';
    if (text.length < minimum) return part;
    const known = this.#known.get(`${section} ${text}`);
    if (known) return { $ref: known };
    const group = asTree(this.#components[section]);
    this.#components[section] = group;
    let free = Object.hasOwn(group, name) ? other : name;
    for (let count = 3; Object.hasOwn(group, free); count += 1) free = `${other.replace(/\d+$/, '')}${count}`;
    group[free] = part;
    const reference = `#/components/${section}/${free}`;
    this.#known.set(`${section} ${text}`, reference);
    return { $ref: reference };
  }
}

/** The bodies of one operation: the entity of an answer by the key that wraps it, the request by the operation. */
function nameBodies(operation: Tree, names: Names): void {
  const id = upper(String(operation.operationId));
  for (const media of mediaOf(operation.requestBody)) media.schema = names.refer('schemas', media.schema, `${id}Body`);
  for (const [status, response] of Object.entries(asTree(operation.responses)))
    if (Number(status) < 400)
      for (const media of mediaOf(response)) {
        const { properties } = asTree(media.schema) as { properties?: Tree };
        for (const [key, value] of Object.entries(properties ?? {})) {
          const inner = asTree(asTree(value).properties);
          const items = asTree(inner.results);
          if (inner.results && inner.meta) {
            items.items = names.refer('schemas', items.items, singular(upper(key)), `${singular(upper(key))}Of${id}`);
            inner.meta = names.refer('schemas', inner.meta, 'ListMeta');
          } else if (properties) properties[key] = names.refer('schemas', value, upper(key), `${upper(key)}Of${id}`);
        }
        media.schema = names.refer('schemas', media.schema, `${id}Answer`);
      }
}

function errorName(status: string, codes: Tree): string {
  return `Error${status}${asList(codes[status])
    .map((code) => `_${String(code).replace(/\W/g, 'm')}`)
    .join('')}`;
}

function* operationsOf(document: Tree): Generator<[string, Tree]> {
  for (const [path, operations] of Object.entries(asTree(document.paths)))
    for (const [method, operation] of Object.entries(asTree(operations)))
      yield [`${method} ${path}`, asTree(operation)];
}

function mediaOf(holder: Json): Tree[] {
  return Object.values(asTree(asTree(holder).content))
    .map(asTree)
    .filter(({ schema }) => schema !== undefined);
}

const asTree = (value: Json): Tree =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Tree) : {};
const asList = (value: Json): Json[] => (Array.isArray(value) ? value : []);
const upper = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
const pascal = (text: string) =>
  text
    .split(/[^A-Za-z0-9]+/)
    .map(upper)
    .join('');

/** `document` with every reference replaced by the component it names, without the components: for those who compare. */
export function resolveComponents(document: object): object {
  const { components = {}, ...rest } = document as { components?: Record<string, Record<string, Json>> };
  const resolve = (value: Json): Json => {
    if (Array.isArray(value)) return value.map(resolve);
    if (typeof value !== 'object' || value === null) return value;
    if ('$ref' in value) {
      const [, , section = '', name = ''] = String(value.$ref).split('/');
      return resolve(components[section]?.[name]);
    }
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolve(inner)]));
  };
  return resolve(rest) as object;
}
