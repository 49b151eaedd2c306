/** The attributes of SCIM (RFC 7643) as a table: what a provider sends is read by it, and GET /Schemas describes it. */
import { propertyOf } from './filters.ts';
import { badValue, type Ignored, isObject, type Json } from './protocol.ts';

export const userSchema = 'urn:ietf:params:scim:schemas:core:2.0:User';
export const groupSchema = 'urn:ietf:params:scim:schemas:core:2.0:Group';
export const enterpriseSchema = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User';

/** Characters of a person as JSON: a list has up to 200. */
export const maxCharacters = 16_384;
/** As it is sent, with what no schema knows. */
const maxSent = 4 * maxCharacters;
export const maxValues = 100;

/** An attribute as RFC 7643, 7 describes it. What is left out is as usual: one value, optional, to be read and written. */
export interface Attribute {
  name: string;
  type: 'string' | 'boolean' | 'reference' | 'binary' | 'complex';
  multiValued?: true;
  required?: true;
  caseExact?: true;
  mutability?: 'readOnly' | 'immutable';
  uniqueness?: 'server';
  /** Suggestions, others are taken, too. */
  canonicalValues?: readonly string[] | undefined;
  referenceTypes?: readonly string[];
  subAttributes?: readonly Attribute[];
}

type More = Partial<Attribute>;
const text = (name: string, more: More = {}): Attribute => ({ name, type: 'string', ...more });
const texts = (...names: string[]) => names.map((name) => text(name));
const reference = (name: string, referenceTypes: string[], more: More = {}): Attribute =>
  text(name, { type: 'reference', referenceTypes, ...more });
const complex = (name: string, subAttributes: readonly Attribute[], more: More = {}): Attribute =>
  text(name, { type: 'complex', subAttributes, ...more });
/** Several values of different kinds, one of which is the primary one. */
const several = (name: string, canonicalValues?: string[], parts: Attribute[] = texts('value', 'display')) =>
  complex(name, [...parts, text('type', { canonicalValues }), text('primary', { type: 'boolean' })], {
    multiValued: true,
  });
/** People or groups that belong to it. */
const links = (name: string, canonicalValues: string[], mutability: 'readOnly' | 'immutable', more: More = {}) => {
  const parts = [
    text('value'),
    text('display'),
    reference('$ref', ['User', 'Group']),
    text('type', { canonicalValues }),
  ];
  const subAttributes = parts.map((one) => ({ ...one, mutability }));
  return complex(name, subAttributes, { multiValued: true, ...more });
};

const userAttributes: readonly Attribute[] = [
  text('userName', { required: true, uniqueness: 'server' }),
  complex('name', texts('formatted', 'familyName', 'givenName', 'middleName', 'honorificPrefix', 'honorificSuffix')),
  ...texts('displayName', 'nickName'),
  reference('profileUrl', ['external']),
  ...texts('title', 'userType', 'preferredLanguage', 'locale', 'timezone'),
  text('active', { type: 'boolean' }),
  several('emails', ['work', 'home', 'other']),
  several('phoneNumbers', ['work', 'home', 'mobile', 'fax', 'pager', 'other']),
  several('ims', ['aim', 'gtalk', 'icq', 'xmpp', 'msn', 'skype', 'qq', 'yahoo']),
  several('photos', ['photo', 'thumbnail'], [reference('value', ['external']), text('display')]),
  several(
    'addresses',
    ['work', 'home', 'other'],
    texts('formatted', 'streetAddress', 'locality', 'region', 'postalCode', 'country'),
  ),
  links('groups', ['direct', 'indirect'], 'readOnly', { mutability: 'readOnly' }),
  several('entitlements'),
  several('roles'),
  several('x509Certificates', undefined, [text('value', { type: 'binary', caseExact: true }), text('display')]),
];
const groupAttributes: readonly Attribute[] = [
  text('displayName', { required: true }),
  links('members', ['User', 'Group'], 'immutable'),
];
const enterpriseAttributes: readonly Attribute[] = [
  ...texts('employeeNumber', 'costCenter', 'organization', 'division', 'department'),
  complex('manager', [text('value'), reference('$ref', ['User']), text('displayName', { mutability: 'readOnly' })]),
];
/** With those that every resource has, which schemas do not describe. */
const personAttributes = [...texts('schemas', 'id', 'externalId'), complex('meta', []), ...userAttributes];
const described = [
  { id: userSchema, name: 'User', description: 'User Account', attributes: userAttributes },
  { id: groupSchema, name: 'Group', description: 'Group', attributes: groupAttributes },
  { id: enterpriseSchema, name: 'EnterpriseUser', description: 'Enterprise User', attributes: enterpriseAttributes },
];

/** Of these the service says what they are; providers send them back. */
export const readOnly: readonly string[] = ['id', 'meta', 'groups', 'schemas'];

/** An attribute of a person in any letter case; undefined where there is none. */
export function attributeOf(schema: string | undefined, name: string): Attribute | undefined {
  if (isSame(schema, enterpriseSchema)) return named(enterpriseAttributes, name);
  return schema === undefined || isSame(schema, userSchema) ? named(personAttributes, name) : undefined;
}

/** The part of a complex attribute. */
export function partOf({ subAttributes = [] }: Attribute, name: string): Attribute | undefined {
  return named(subAttributes, name);
}

function named(attributes: readonly Attribute[], name: string): Attribute | undefined {
  return attributes.find((one) => isSame(one.name, name));
}

export function isSame(one: string | undefined, other: string): boolean {
  return one?.toLowerCase() === other.toLowerCase();
}

/** What GET /Schemas answers. */
export function describeSchemas(address: string): Json[] {
  return described.map(({ attributes, ...schema }) => ({
    ...{ schemas: ['urn:ietf:params:scim:schemas:core:2.0:Schema'], ...schema, attributes: attributes.map(describe) },
    meta: { resourceType: 'Schema', location: `${address}/${schema.id}` },
  }));
}

function describe({ subAttributes, ...own }: Attribute): Json {
  const { name, type } = own;
  return {
    ...{ multiValued: false, required: false, mutability: 'readWrite', returned: 'default' },
    description: name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`),
    ...(type !== 'boolean' && { uniqueness: 'none' }),
    ...(type !== 'boolean' && type !== 'complex' && { caseExact: false }),
    ...own,
    ...(subAttributes && { subAttributes: subAttributes.map(describe) }),
  };
}

/** A person with attributes that the schemas know, of their types; `ignored` gets the others. @throws PlatformError 400/invalidValue */
export function readUser(data: Json, ignored: Ignored): Json {
  demandSchema(data, userSchema);
  if (JSON.stringify(data).length > maxSent) throw badValue(`It has more than ${maxSent} characters.`);
  const own = Object.entries(data).filter(
    ([key]) => !isSame(key, enterpriseSchema) && !readOnly.includes(key.toLowerCase()),
  );
  const read = readParts(Object.fromEntries(own), personAttributes, '', ignored);
  const extension = propertyOf(data, enterpriseSchema);
  const more = isObject(extension) ? readParts(extension, enterpriseAttributes, `${enterpriseSchema}:`, ignored) : {};
  const hasExtension = Object.keys(more).length > 0;
  // In the order of the table: what is the same is the same text.
  const inOrder = personAttributes.flatMap(({ name }) => (name in read ? [[name, read[name]]] : []));
  const resource = { ...Object.fromEntries(inOrder), ...(hasExtension && { [enterpriseSchema]: more }) };
  if (JSON.stringify(resource).length > maxCharacters) throw badValue(`It has more than ${maxCharacters} characters.`);
  return { schemas: [userSchema, ...(hasExtension ? [enterpriseSchema] : [])], ...resource };
}

/** @throws PlatformError 400/invalidValue for a body that names other schemas. */
export function demandSchema(data: Json, schema: string): void {
  const named = propertyOf(data, 'schemas');
  if (named === undefined) return;
  const isNamed = [named].flat().some((one) => typeof one === 'string' && isSame(one, schema));
  if (!isNamed) throw badValue(`schemas must have ${schema}.`);
}

function readParts(data: Json, attributes: readonly Attribute[], prefix: string, ignored: Ignored): Json {
  const read: Json = {};
  for (const [key, value] of Object.entries(data)) {
    if (value === null || value === undefined) continue;
    const attribute = named(attributes, key);
    const values = attribute && readValues(value, attribute, ignored);
    if (!attribute) ignored.add(prefix + key);
    else if (values !== undefined) read[attribute.name] = values;
  }
  return read;
}

/** Providers send one value where several may be, and several where one may be. */
function readValues(value: unknown, attribute: Attribute, ignored: Ignored): unknown {
  const given = [value].flat().filter((one) => one !== null);
  const values = given.slice(0, maxValues).map((one) => readValue(one, attribute, ignored));
  keepOnePrimary(values, values);
  return attribute.multiValued ? values : values[0];
}

/** RFC 7643, 2.4: one value is the primary one. The first of those that are changed takes the place of the former one. */
export function keepOnePrimary(all: readonly unknown[], changed: readonly unknown[]): void {
  const primary = changed.find((one) => isObject(one) && String(one.primary).toLowerCase() === 'true');
  if (primary) for (const one of all) if (one !== primary && isObject(one) && one.primary) one.primary = false;
}

/** Entra ID sends booleans as "True" and "False", and numbers where texts belong. @throws PlatformError 400/invalidValue */
function readValue(value: unknown, { name, type, subAttributes = [] }: Attribute, ignored: Ignored): unknown {
  if (type === 'complex') return readParts(isObject(value) ? value : { value }, subAttributes, `${name}.`, ignored);
  if (type === 'boolean') {
    const said = String(value).toLowerCase();
    if (said !== 'true' && said !== 'false') throw badValue(`${name} must be true or false.`);
    return said === 'true';
  }
  if (typeof value !== 'string' && typeof value !== 'number') throw badValue(`${name} must be a text.`);
  return String(value);
}
