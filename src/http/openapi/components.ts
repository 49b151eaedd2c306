/**
 * The published form of the OpenAPI document. What occurs more than once becomes a named component, so that generated
 * clients have a type `Device` and the document stays small. `resolveComponents` shows that nothing is lost.
 */

import { failureOf, identityErrorCode } from '../../core/errors.ts';
import { withExamples } from './examples.ts';
import { commonHeaders } from './response-headers.ts';
import { asList, asTree, type Json, type Tree } from './tree.ts';

/** Of the form of a list that has only the properties that `fields` names. */
export const chosenTitle = 'With fields';
/** Characters of JSON from which a repeated part gets a name. */
const minimum = 60;

/** The document as it is served: without repetitions, with named components and their examples. */
export function publish(document: object): object {
  return withExamples(nameComponents(withoutRepetitions(document)) as Tree);
}

/**
 * The document without what it says more than once, and with each fact still in it. What every operation shares stands once: headers
 * of responses in the head, errors that any operation can answer as its `default`. The argument is not changed.
 */
export function withoutRepetitions(document: object): object {
  const copy = structuredClone(document) as Tree;
  const usual = JSON.stringify(copy.security);
  for (const operation of operationsOf(copy)) {
    if (JSON.stringify(operation.security) === usual) delete operation.security;
    const codes = asTree(operation['x-codes']);
    delete operation['x-codes'];
    const responses = asTree(operation.responses);
    for (const [status, response] of Object.entries(responses).map(([key, one]) => [key, asTree(one)] as const)) {
      if (codes[status]) response['x-codes'] = codes[status];
      withoutCommonHeaders(response);
      for (const media of mediaOf(response)) {
        const { description, ...schema } = asTree(media.schema);
        if (description === response.description) media.schema = schema;
      }
    }
    joinGeneralErrors(responses);
    for (const parameter of parametersOf(operation)) if (parameter.required === false) delete parameter.required;
  }
  return copy;
}

function withoutCommonHeaders(response: Tree): void {
  const headers = asTree(response.headers);
  for (const [name, header] of Object.entries(headers))
    if (commonHeaders.includes(String(asTree(header).description))) delete headers[name];
  if (Object.keys(headers).length === 0) delete response.headers;
}

/** Statuses that follow from the caller, its body or the state of the service, rather than from what it asks for. */
const generalErrors = ['401', '403', '413', '415', '429', '500', '503', '507'];

const invalidCodes: Json[] = [failureOf('invalid').code, identityErrorCode('invalid')];

/** Makes them one response, `default`, whose `x-codes` tells the codes of each status. */
function joinGeneralErrors(responses: Tree): void {
  const codes: Tree = {};
  const lines: string[] = [];
  let joined: Tree = {};
  for (const status of ['400', ...generalErrors]) {
    if (!responses[status]) continue;
    const { description, 'x-codes': of, ...rest } = asTree(responses[status]);
    // A 400 says more than that something is invalid, or it belongs to the others.
    if (status === '400' && asList(of).some((code) => !invalidCodes.includes(code))) continue;
    codes[status] = of;
    lines.push(
      ...String(description)
        .split('\n')
        .map((line) => line.replace(/^- /, `- ${status} `)),
    );
    joined = { ...joined, ...rest };
    delete responses[status];
  }
  responses.default = { description: lines.join('\n'), 'x-codes': codes, ...joined };
}

/** The document with named schemas, and named responses, headers and parameters where two are alike. */
export function nameComponents(document: object): object {
  const copy = structuredClone(document) as Tree;
  const components = asTree(copy.components);
  const operations = [...operationsOf(copy)];
  const schemas = new Names(components, 'schemas', () => true);
  for (const operation of operations) nameBodies(operation, schemas);
  nameNested(asTree(components.schemas), operations, schemas);
  shareEntityFields(asTree(components.schemas));
  const headers = new Names(components, 'headers', repeated(operations.flatMap(headersOf)));
  for (const operation of operations)
    for (const response of responsesOf(operation)) {
      const sent = asTree(response.headers);
      for (const [name, header] of Object.entries(sent)) sent[name] = headers.refer(header, pascal(name));
    }
  const parameters = new Names(components, 'parameters', repeated(operations.flatMap(parametersOf)));
  const responses = new Names(components, 'responses', repeated(operations.flatMap(responsesOf)));
  for (const operation of operations) {
    if (operation.parameters)
      operation.parameters = parametersOf(operation).map((one) => parameters.refer(one, pascal(String(one.name))));
    const answers = asTree(operation.responses);
    for (const [status, response] of Object.entries(answers))
      answers[status] = responses.refer(response, responseName(status, asTree(response)));
  }
  for (const operations of Object.values(asTree(copy.paths))) hoistParameters(asTree(operations));
  copy.components = components;
  return copy;
}

/** Parameters that all operations of a path have are said once, of the path. */
function hoistParameters(path: Tree): void {
  const operations = Object.values(path).map(asTree);
  const [first] = operations;
  if (!first || operations.length < 2) return;
  const has = (operation: Tree, text: string) =>
    asList(operation.parameters).some((one) => JSON.stringify(one) === text);
  const shared = asList(first.parameters).filter((one) =>
    operations.every((operation) => has(operation, JSON.stringify(one))),
  );
  if (shared.length === 0) return;
  const texts = shared.map((one) => JSON.stringify(one));
  for (const operation of operations) {
    operation.parameters = asList(operation.parameters).filter((one) => !texts.includes(JSON.stringify(one)));
    if (asList(operation.parameters).length === 0) delete operation.parameters;
  }
  path.parameters = shared;
}

/** Names of one section of the components: the same name for the same part, and another for one that differs. */
class Names {
  readonly #group: Tree;
  readonly #known = new Map<string, string>();

  readonly section: string;
  readonly deserves: (text: string) => boolean;

  constructor(components: Tree, section: string, deserves: (text: string) => boolean) {
    this.section = section;
    this.deserves = deserves;
    this.#group = asTree(components[section]);
    components[section] = this.#group;
  }

  /** The reference to a part that has a name, by its JSON. */
  known(text: string): Json | undefined {
    const reference = this.#known.get(text);
    return reference && { $ref: reference };
  }

  /** A reference to `part` under `name`, or `other` where that is taken; short parts stay where they are. */
  refer(part: Json, unlessTitled: string, other = `${unlessTitled}2`): Json {
    const name = String(asTree(part).title ?? unlessTitled);
    const text = JSON.stringify(part) ?? '';
    if (text.length < minimum || !this.deserves(text)) return part;
    const known = this.#known.get(text);
    if (known) return { $ref: known };
    let free = Object.hasOwn(this.#group, name) ? other : name;
    for (let count = 3; Object.hasOwn(this.#group, free); count += 1) free = `${other.replace(/\d+$/, '')}${count}`;
    this.#group[free] = part;
    const reference = `#/components/${this.section}/${free}`;
    this.#known.set(text, reference);
    return { $ref: reference };
  }
}

/** Whether a part, as JSON, is there more than once. */
function repeated(parts: readonly Json[]): (text: string) => boolean {
  const counts = new Map<string, number>();
  for (const part of parts) {
    const text = JSON.stringify(part);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return (text) => (counts.get(text) ?? 0) > 1;
}

/** The bodies of one operation: the entity of an answer by the key that wraps it, the request by the operation. */
function nameBodies(operation: Tree, names: Names): void {
  const id = upper(String(operation.operationId));
  for (const media of mediaOf(operation.requestBody)) media.schema = names.refer(media.schema, `${id}Body`);
  for (const [status, response] of Object.entries(asTree(operation.responses)))
    if (Number(status) < 400)
      for (const media of mediaOf(response)) media.schema = nameAnswer(asTree(media.schema), id, names);
}

/** An answer: `DeviceAnswer` holds a `Device`, `DevicesPage` a page of them, and other answers are called by the operation. */
function nameAnswer(schema: Tree, id: string, names: Names): Json {
  const forms = asList(schema.anyOf).map(asTree);
  if (forms.some(({ title }) => title === chosenTitle))
    return { ...schema, anyOf: forms.map((form) => nameForm(form, id, names)) };
  const properties = asTree(schema.properties);
  const wrappers = Object.keys(properties);
  let isPage = false;
  for (const [key, value] of Object.entries(properties)) {
    const inner = asTree(asTree(value).properties);
    if (inner.results && inner.meta) {
      isPage = true;
      const items = asTree(inner.results);
      items.items = names.refer(items.items, singular(upper(key)), `${singular(upper(key))}Of${id}`);
      inner.meta = names.refer(inner.meta, 'ListMeta');
    } else if (isStructure(asTree(value))) properties[key] = names.refer(value, upper(key), `${upper(key)}Of${id}`);
  }
  const [only = ''] = wrappers;
  const name = wrappers.length === 1 ? `${upper(only)}${isPage ? 'Page' : 'Answer'}` : `${id}Answer`;
  return names.refer(schema, name, `${id}Answer`);
}

/** A form of a list: whole entities, or those properties of them that the query names. The entity has one name in both. */
function nameForm({ title, ...form }: Tree, id: string, names: Names): Json {
  if (title !== chosenTitle) return nameAnswer(form, id, names);
  for (const [key, value] of Object.entries(asTree(form.properties))) {
    const page = asTree(asTree(value).properties);
    const items = asTree(page.results);
    items.items = names.refer(items.items, `${singular(upper(key))}Part`);
    page.meta = names.refer(page.meta, 'ListMeta');
  }
  return { title, ...form };
}

const commonNames = [
  'id',
  'accountId',
  'created',
  'createdById',
  'lastModified',
  'lastModifiedById',
  'version',
  'deleted',
];

/**
 * The fields of every entity are a component of their own, `Entity`, as the schema of `Device` has them. Where there is a
 * `DevicePart` too, of which only the id is required, both are made of `DeviceFields`.
 */
function shareEntityFields(schemas: Tree): void {
  const { properties: fields, required } = asTree(schemas.Device);
  const isCommon = ([name]: [string, Json]) => commonNames.includes(name);
  const common = Object.entries(asTree(fields)).filter(isCommon);
  const needed = asList(required).filter((name) => commonNames.includes(String(name)));
  const refer = (name: string) => ({ $ref: `#/components/schemas/${name}` });
  const ownOf = (schema: Json) =>
    Object.fromEntries(Object.entries(asTree(asTree(schema).properties)).filter((one) => !isCommon(one)));
  const parts = Object.keys(schemas).filter((name) => name.endsWith('Part'));
  const partOf = new Map(parts.map((name) => [JSON.stringify(ownOf(schemas[name])), name]));
  for (const [kind, schema] of Object.entries(schemas).map(([key, one]) => [key, asTree(one)] as const)) {
    const all = asTree(schema.properties);
    const has = ([name, value]: [string, Json]) => JSON.stringify(all[name]) === JSON.stringify(value);
    if (!common.every(has) || !needed.every((name) => asList(schema.required).includes(name))) continue;
    const own = { type: 'object', properties: ownOf(schema) };
    const ownRequired = asList(schema.required).filter((name) => !commonNames.includes(String(name)));
    const { properties: _, required: __, ...more } = schema;
    const part = partOf.get(JSON.stringify(own.properties));
    if (part) {
      schemas[`${kind}Fields`] = own;
      schemas[part] = { type: 'object', allOf: [refer('EntityPart'), refer(`${kind}Fields`)] };
      schemas[kind] = { ...more, allOf: [refer('Entity'), refer(`${kind}Fields`)], required: ownRequired };
    } else schemas[kind] = { ...more, allOf: [refer('Entity'), { ...own, required: ownRequired }] };
  }
  const properties = Object.fromEntries(common);
  schemas.Entity = { type: 'object', required: needed, properties };
  schemas.EntityPart = { type: 'object', required: ['id'], properties };
}

/** Characters of JSON from which a list of values gets a name. */
const minimumEnum = 90;

/** Parts of schemas and parameters that are components already, such as an entity in another one, and repeated enums. */
function nameNested(group: Tree, operations: Tree[], names: Names): void {
  const roots = [...Object.values(group), ...operations.flatMap(parametersOf).map(({ schema }) => schema)];
  const enums = repeated(roots.flatMap((root) => [...enumsOf(root)]));
  for (const root of roots) replaceNested(asTree(root), names, enums);
}

function replaceNested(schema: Tree, names: Names, isRepeatedEnum: (text: string) => boolean): void {
  const replaced = (part: Json, name: string): Json => {
    const text = JSON.stringify(part);
    const known = names.known(text);
    if (known) return known;
    if (asTree(part).enum && text.length >= minimumEnum && isRepeatedEnum(text)) return names.refer(part, upper(name));
    replaceNested(asTree(part), names, isRepeatedEnum);
    return asTree(part).title ? names.refer(part, name) : part;
  };
  const properties = asTree(schema.properties);
  for (const [name, part] of Object.entries(properties)) properties[name] = replaced(part, name);
  if (schema.items) schema.items = replaced(schema.items, 'Item');
  if (schema.anyOf) schema.anyOf = asList(schema.anyOf).map((part) => replaced(part, 'Choice'));
}

function* enumsOf(schema: Json): Generator<Json> {
  const { properties, items, enum: values } = asTree(schema);
  if (values) yield schema;
  for (const part of [...Object.values(asTree(properties)), ...(items ? [items] : [])]) yield* enumsOf(part);
}

/** Text and numbers stay where they are: a type of their own would say nothing. */
function isStructure({ properties, items, anyOf }: Tree): boolean {
  return properties !== undefined || items !== undefined || anyOf !== undefined;
}

/** `E404_100` by its codes, `DeviceAnswer` by its schema. */
function responseName(status: string, response: Tree): string {
  const codes = asList(response['x-codes']);
  if (status === 'default') return 'Errors';
  if (codes.length > 0) return `E${status}${codes.map((code) => `_${String(code).replace(/\W/g, 'm')}`).join('')}`;
  const [schema = ''] = mediaOf(response).map((media) => String(asTree(media.schema).$ref ?? ''));
  return schema.slice(schema.lastIndexOf('/') + 1) || `Success${status}`;
}

function* operationsOf(document: Tree): Generator<Tree> {
  for (const operations of Object.values(asTree(document.paths)))
    for (const operation of Object.values(asTree(operations))) yield asTree(operation);
}

const parametersOf = (operation: Tree) => asList(operation.parameters).map(asTree);
const responsesOf = (operation: Tree) => Object.values(asTree(operation.responses)).map(asTree);
const headersOf = (operation: Tree) => responsesOf(operation).flatMap(({ headers }) => Object.values(asTree(headers)));

function mediaOf(holder: Json): Tree[] {
  return Object.values(asTree(asTree(holder).content))
    .map(asTree)
    .filter(({ schema }) => schema !== undefined);
}

const upper = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** `Authorities` is Authority, `Devices` Device. */
const singular = (plural: string) => plural.replace(/ies$/, 'y').replace(/s$/, '');

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
    if ('allOf' in value) {
      const { allOf, ...more } = value;
      const parts = asList(allOf).map((part) => asTree(resolve(part)));
      return {
        ...asTree(resolve(more)),
        required: [...parts, asTree(more)].flatMap(({ required }) => asList(required)),
        properties: Object.assign({}, ...parts.map(({ properties }) => properties)),
      };
    }
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolve(inner)]));
  };
  const resolved = asTree(resolve(rest));
  for (const path of Object.values(asTree(resolved.paths)).map(asTree)) {
    const shared = asList(path.parameters);
    delete path.parameters;
    for (const operation of Object.values(path).map(asTree))
      if (shared.length > 0) operation.parameters = [...asList(operation.parameters), ...shared];
  }
  return resolved;
}
