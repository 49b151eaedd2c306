/** Examples of the OpenAPI document, made of its schemas: one for each component, and one for each shared parameter. */
import { asList, asTree, type Json, type Tree } from './tree.ts';

/** Values that tell more than their schema, by the name of the property or parameter. */
const telling: Record<string, Json> = {
  id: '01932c5e-7a10-7abc-8def-000000000abc',
  accountId: '01932c5e-7a10-7000-8000-000000000abc',
  serialNumber: 'SN-000042',
  name: 'Greenhouse 4',
  emailAddress: 'ada@example.com',
  idmUserEmail: 'ada@example.com',
  email: 'ada@example.com',
  password: 'correct horse battery',
  newPassword: 'correct horse battery',
  oldPassword: 'a former password',
  currentPassword: 'a former password',
  version: '3',
  etag: '"3"',
  entityVersion: '3',
  success: true,
  newEmailAddress: 'ada@example.com',
  sourceTimestamp: '2026-03-01T12:00:00.000Z',
  received: '2026-03-01T12:00:00.000Z',
  from: '2026-03-01T00:00:00.000Z',
  to: '2026-03-01T12:00:00.000Z',
  rows: 'serialNumber,template\nSN-000042,Thermometer\n',
  passed: true,
  delivered: true,
  firmwareVersion: '1.4.2',
  fieldType: 'string',
  entityType: 'device',
  countryCode: 'US',
  phoneNumber: '+15550100',
  code: '123456',
  channel: 'slipway/v1/01932c5e-7a10-7000-8000-000000000abc/d/01932c5e-7a10-7abc-8def-000000000abc/temperature',
  topic: 'slipway/v1/01932c5e-7a10-7000-8000-000000000abc/d/01932c5e-7a10-7abc-8def-000000000abc/temperature',
  channelTemplateName: 'temperature',
  category: 'inside',
  numericValue: 21.5,
  message: 'The fan stands still.',
  sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  associationCode: '4CJ7-W9XN-2KQP',
  jwt: 'eyJhbGciOiJFZERTQSJ9.e30.c2ln',
  issuer: 'https://login.example.com',
  url: 'https://example.com/hook',
  method: 'GET',
  path: '/api/v1/devices',
  timezone: 'Europe/Berlin',
};

const time = '2026-03-01T12:00:00.000Z';

/** Texts of bodies that are not JSON. */
const texts: Record<string, string> = {
  'text/event-stream': `id: 1\nevent: message\ndata: {"topic":"${telling.topic}","payload":"21.5","time":"${time}"}\n\n`,
  'text/csv': `timestamp,category,numericValue,stringValue\n${time},inside,21.5,\n`,
  'application/x-ndjson': `{"time":"${time}","category":"inside","numericValue":21.5}\n`,
};

/** Adds an example to each named schema that is not only a wrapper, to shared parameters and to bodies of text. */
export function withExamples(document: Tree): Tree {
  const components = document.components as Record<string, Record<string, Tree>>;
  const schemas = components.schemas ?? {};
  for (const schema of Object.values(schemas))
    for (const part of ownParts(schema)) {
      const example = exampleOf(part, '', schemas);
      if (example !== undefined) part.examples ??= [example];
    }
  for (const parameter of Object.values(components.parameters ?? {})) exemplify(parameter);
  for (const operations of Object.values(asTree(document.paths)))
    for (const operation of Object.values(asTree(operations)).map(asTree)) {
      for (const parameter of asList(operation.parameters).map(asTree)) if (parameter.required) exemplify(parameter);
      for (const response of Object.values(asTree(operation.responses)))
        for (const [type, media] of Object.entries(asTree(asTree(response).content)))
          if (texts[type] && !('$ref' in asTree(asTree(media).schema))) asTree(media).example = texts[type];
    }
  return document;
}

function exemplify(parameter: Tree): void {
  const value = tellingValue(String(parameter.name));
  if (value !== undefined && fits(value, asTree(parameter.schema))) parameter.example = value;
}

/** The parts of a schema that need an example: of an entity all except common fields, of a wrapper none. */
function ownParts(schema: Tree): Tree[] {
  const parts = Array.isArray(schema.allOf) ? schema.allOf.map(asTree) : [schema];
  return parts.filter((part) => !('$ref' in part) && !isWrapper(part));
}

/** Whether a schema holds only what has examples of its own. */
function isWrapper(schema: Tree): boolean {
  if (Array.isArray(schema.enum) || '$ref' in asTree(schema.items)) return true;
  const parts = Object.values(asTree(schema.properties)).map(asTree);
  return parts.length > 0 && parts.every((part) => '$ref' in part || 'meta' in asTree(part.properties));
}

type Schemas = Record<string, Tree>;

/** A value that the schema accepts, with its required properties; of a body without any, its first ones. */
export function exampleOf(schema: Tree, name: string, schemas: Schemas): Json {
  if (typeof schema.$ref === 'string') {
    const component = componentOf(schema, schemas);
    return component && exampleOf(component, name, schemas);
  }
  if (Array.isArray(schema.allOf))
    return Object.assign(
      {},
      ...schema.allOf.map((part) => exampleOf(partOf(schema, asTree(part), schemas), '', schemas)),
    );
  if ('const' in schema) return schema.const;
  if (Array.isArray(schema.examples)) return schema.examples[0];
  const value = tellingValue(name);
  if (Array.isArray(schema.enum)) return schema.enum.includes(value) ? value : schema.enum[0];
  if (value !== undefined && fits(value, schema)) return value;
  if (Array.isArray(schema.anyOf)) return exampleOf(asTree(schema.anyOf[0]), name, schemas);
  const types = [schema.type].flat();
  if (types.includes('null')) return null;
  switch (types[0]) {
    case 'string':
      return textOf(schema);
    case 'integer':
    case 'number':
      return schema.default ?? schema.minimum ?? 1;
    case 'boolean':
      return schema.default ?? false;
    case 'array':
      return [exampleOf(asTree(schema.items), '', schemas)];
    default:
      return objectOf(schema, schemas);
  }
}

function componentOf({ $ref }: Tree, schemas: Schemas): Tree | undefined {
  return schemas[String($ref).slice(String($ref).lastIndexOf('/') + 1)];
}

/** A part of a whole, which may need properties of the part that this one does not. */
function partOf({ required }: Tree, part: Tree, schemas: Schemas): Tree {
  if (!Array.isArray(required)) return part;
  const { examples: _, ...found } = '$ref' in part ? (componentOf(part, schemas) ?? {}) : part;
  return { ...found, required: [...(Array.isArray(found.required) ? found.required : []), ...required] };
}

/** Names that end in Id are ids too. */
function tellingValue(name: string): Json {
  return Object.hasOwn(telling, name) ? telling[name] : /Id$/.test(name) ? telling.id : undefined;
}

function textOf({ format, minLength = 0, maxLength = 100 }: Tree): string {
  if (format === 'uuid') return String(telling.id);
  if (format === 'date-time') return time;
  return 'text'.padEnd(Number(minLength), '-').slice(0, Number(maxLength));
}

function objectOf({ properties, required }: Tree, schemas: Schemas): Tree {
  const known = Object.entries(asTree(properties));
  const needed = Array.isArray(required) ? required : [];
  const shown = needed.length > 0 ? known.filter(([name]) => needed.includes(name)) : known.slice(0, 2);
  return Object.fromEntries(shown.map(([name, schema]) => [name, exampleOf(asTree(schema), name, schemas)]));
}

/** Whether a telling value is of a type that the schema takes, and of a length that it takes. */
function fits(
  value: Json,
  { type, maxLength = Number.POSITIVE_INFINITY, minLength = 0, anyOf, pattern }: Tree,
): boolean {
  if (Array.isArray(anyOf)) return anyOf.some((one) => fits(value, asTree(one)));
  if (typeof pattern === 'string' && !new RegExp(pattern, 'u').test(String(value))) return false;
  const types = [type].flat();
  if (value === null) return types.includes('null');
  if (typeof value === 'string')
    return types.includes('string') && value.length <= Number(maxLength) && value.length >= Number(minLength);
  return types.includes(typeof value) || types.includes('integer');
}
