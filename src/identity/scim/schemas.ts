/**
 * The attributes of SCIM (RFC 7643), which scimmy describes and checks. What providers send otherwise than the RFC says is
 * read before: booleans as texts, names in another letter case, one value where several may be.
 */
import type SCIMMY from 'scimmy';
import { propertyOf } from '../../formats/filters.ts';
import { badValue, type Ignored, isObject, type Json } from './protocol.ts';

export const userSchema = 'urn:ietf:params:scim:schemas:core:2.0:User';
export const groupSchema = 'urn:ietf:params:scim:schemas:core:2.0:Group';
export const enterpriseSchema = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User';

/** Characters of a person as JSON: a list has up to 200. */
export const maxCharacters = 16_384;
/** As it is sent, with what no schema knows. */
const maxSent = 4 * maxCharacters;
export const maxValues = 100;

/** An attribute as PATCH has to know it. */
export interface Attribute {
  name: string;
  multiValued: boolean;
  complex: boolean;
  /** Whether a complex attribute has this part. */
  hasPart(name: string): boolean;
}

export interface Schemas {
  /** A person with attributes that the schemas know, of their types; `ignored` gets the others. @throws PlatformError 400/invalidValue */
  readUser(data: Json, ignored: Ignored): Json;
  /** Undefined for an attribute that there is not. */
  attribute(schema: string | undefined, name: string): Attribute | undefined;
  /** What GET /Schemas answers. */
  describe(address: string): object[];
}

let loading: Promise<Schemas> | undefined;

/** Loaded with the first request: most services have no provider that speaks SCIM. */
export function loadSchemas(): Promise<Schemas> {
  loading ??= import('scimmy').then((module) => schemasOf(module.default));
  return loading;
}

function schemasOf({ Schemas: { User, EnterpriseUser, Group } }: typeof SCIMMY): Schemas {
  // Passwords are not taken from providers.
  const definition = User.definition.extend(EnterpriseUser.definition).truncate('password');
  const described = [User, Group, EnterpriseUser].map(({ definition: one }) => JSON.stringify(one.describe()));
  // RFC 7643, 7: canonical values are suggestions, and scimmy takes no others. They are described all the same.
  for (const one of [...User.definition.attributes, ...EnterpriseUser.definition.attributes]) takeAnyValue(one);
  const attribute = (schema: string | undefined, name: string): Attribute | undefined => {
    const isExtension = schema?.toLowerCase() === enterpriseSchema.toLowerCase();
    if (schema !== undefined && !isExtension && schema.toLowerCase() !== userSchema.toLowerCase()) return undefined;
    try {
      const found = definition.attribute(isExtension ? `${enterpriseSchema}:${name}` : name) as unknown as {
        name: string;
        type: unknown;
        config: { multiValued: boolean };
        subAttributes?: readonly { name: string }[];
      };
      const { name: known, type, config, subAttributes = [] } = found;
      const parts = new Set(subAttributes.map((part) => part.name.toLowerCase()));
      const hasPart = (part: string) => parts.has(part.toLowerCase());
      return { name: known, multiValued: config.multiValued, complex: String(type) === 'complex', hasPart };
    } catch {
      return undefined;
    }
  };
  const readUser = (data: Json, ignored: Ignored): Json => {
    demandSchema(data, userSchema);
    if (JSON.stringify(data).length > maxSent) throw badValue(`It has more than ${maxSent} characters.`);
    let checked: Json;
    try {
      const plain = readable(data, undefined, attribute, ignored);
      checked = JSON.parse(JSON.stringify(definition.coerce(plain, 'in'))) as Json;
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      throw badValue(error.message);
    }
    const { schemas: _, meta: __, id: ___, groups: ____, ...resource } = checked;
    const hasExtension = Object.keys(propertyOf(resource, enterpriseSchema) ?? {}).length > 0;
    if (!hasExtension) delete resource[enterpriseSchema];
    if (JSON.stringify(resource).length > maxCharacters)
      throw badValue(`It has more than ${maxCharacters} characters.`);
    return { schemas: [userSchema, ...(hasExtension ? [enterpriseSchema] : [])], ...resource };
  };
  const describe = (address: string) =>
    described.map((text) => {
      const { meta, ...one } = JSON.parse(text) as { id: string; meta: object };
      return { ...one, meta: { ...meta, location: `${address}/${one.id}` } };
    });
  return { readUser, attribute, describe };
}

function takeAnyValue(of: object): void {
  const { config, subAttributes = [] } = of as { config?: { canonicalValues: unknown }; subAttributes?: object[] };
  if (config) config.canonicalValues = false;
  for (const one of subAttributes) takeAnyValue(one);
}

/** @throws PlatformError 400/invalidValue for a body that names other schemas. */
export function demandSchema(data: Json, schema: string): void {
  const named = propertyOf(data, 'schemas');
  if (named === undefined) return;
  const isNamed = [named].flat().some((one) => typeof one === 'string' && one.toLowerCase() === schema.toLowerCase());
  if (!isNamed) throw badValue(`schemas must have ${schema}.`);
}

/** Of these the service says what they are; providers send them back. */
export const readOnly: readonly string[] = ['id', 'meta', 'groups', 'schemas'];

/** What a provider sends, as scimmy takes it. */
function readable(data: Json, schema: string | undefined, attribute: Schemas['attribute'], ignored: Ignored): Json {
  const read: Json = {};
  for (const [key, value] of Object.entries(data)) {
    if (value === null || value === undefined) continue;
    if (schema === undefined && key.toLowerCase() === enterpriseSchema.toLowerCase()) {
      if (isObject(value)) read[enterpriseSchema] = readable(value, enterpriseSchema, attribute, ignored);
      continue;
    }
    if (schema === undefined && readOnly.includes(key.toLowerCase())) continue;
    const known = attribute(schema, key);
    if (!known) {
      ignored.add(schema === undefined ? key : `${schema}:${key}`);
      continue;
    }
    const values = [value]
      .flat()
      .slice(0, maxValues)
      .map((one) => readableValue(one, known, ignored));
    read[known.name] = known.multiValued ? values : values[0];
  }
  return read;
}

function readableValue(value: unknown, { name, complex, hasPart }: Attribute, ignored: Ignored): unknown {
  if (complex && !isObject(value)) return { value: plain('value', value) };
  if (!isObject(value)) return plain(name, value);
  const entries = Object.entries(value).filter(([, one]) => one !== null && one !== undefined);
  for (const [key] of complex ? entries : []) if (!hasPart(key)) ignored.add(`${name}.${key}`);
  return Object.fromEntries(entries.map(([key, one]) => [key, plain(key, one)]));
}

/** Entra ID sends the booleans of some attributes as "True" and "False", and numbers where texts belong. */
function plain(name: string, value: unknown): unknown {
  const isBoolean = /^(active|primary)$/i.test(name);
  if (isBoolean && typeof value === 'string' && /^(true|false)$/i.test(value)) return value.toLowerCase() === 'true';
  return typeof value === 'number' ? String(value) : value;
}
