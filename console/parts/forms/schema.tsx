/** Fields of a form from a JSON Schema, and the value that they make. What has no field of its own is written as JSON. */
import { texts } from '../../words.ts';
import { Check, Field, Select, TextArea, type Values } from './form.tsx';

/** What is read of a schema; the API checks the rest. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  oneOf?: Schema[];
  minimum?: number;
  maximum?: number;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  format?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  $ref?: string;
  $defs?: Record<string, Schema>;
}
interface Part {
  schema: Schema;
  /** The name of its field, which is the path that errors of the API have. */
  path: string;
  label: string;
  required: boolean;
}
type Kind = 'object' | 'choice' | 'switch' | 'number' | 'text' | 'json';

const inputs: Record<string, string> = { email: 'email', uri: 'url', date: 'date' };
/** Characters from which on a text has several lines. */
const longText = 255;

/** Objects have fields of their own down to the second level. */
function kindOf({ schema, path }: Part): Kind {
  const { type, properties, enum: values, oneOf = [] } = schema;
  if (values || (oneOf.length > 0 && oneOf.every((one) => 'const' in one))) return 'choice';
  if (type === 'boolean') return 'switch';
  if (`${type}` === 'boolean,null') return 'choice';
  if (type === 'number' || type === 'integer') return 'number';
  if (type === 'string') return 'text';
  return type === 'object' && properties && path.split('/').length < 3 ? 'object' : 'json';
}

function choicesOf({ enum: values, oneOf }: Schema): [value: string, label: string][] {
  if (values) return values.map((value) => [JSON.stringify(value), nameOf(value)]);
  if (oneOf) return oneOf.map(({ const: value, title }) => [JSON.stringify(value), title ?? nameOf(value)]);
  return [
    ['true', texts.yes],
    ['false', texts.no],
  ];
}

const nameOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));

/** The parts of an object. Their `$ref`s lead to definitions of the whole schema. */
function partsOf({ schema, path }: Part, root: Schema): Part[] {
  return Object.entries(schema.properties ?? {}).map(([name, given]) => {
    const { $ref = '', ...own } = given;
    const part = { ...root.$defs?.[$ref.replace('#/$defs/', '')], ...own };
    const required = schema.required?.includes(name) ?? false;
    return { schema: part, path: `${path}/${name}`, label: part.title ?? name, required };
  });
}

const rootOf = (schema: Schema, path: string): Part => ({
  schema,
  path,
  label: texts.payload,
  required: true,
});

/** The fields of a value of this schema. Their names begin with `path`. */
export function SchemaFields({ of, path = 'payload' }: { of: Schema; path?: string }) {
  const root = rootOf(of, path);
  if (kindOf(root) === 'json') return <SchemaField of={root} />;
  return partsOf(root, of).map((part) => <SchemaField key={part.path} of={part} root={of} />);
}

/** One field, with the default of its schema. */
export function SchemaField({ of: part, root = {} }: { of: Part; root?: Schema }) {
  const { schema, path: name, label, required } = part;
  const { description, default: value, minimum: min, maximum: max, minLength, maxLength = 0 } = schema;
  const kind = kindOf(part);
  const range = kind === 'number' && texts.range(min, max);
  const hint = [description, range].filter(Boolean).join(' ');
  const more = { label, name, required, ...(hint !== '' && { hint }) };
  if (kind === 'switch') return <Check {...more} isSwitch checked={value === true} />;
  if (kind === 'choice') {
    // Nobody shall choose by chance.
    const none = required && value !== undefined ? [] : [['', '–'] as const];
    return (
      <Select
        {...more}
        value={value === undefined ? '' : JSON.stringify(value)}
        options={[...none, ...choicesOf(schema)]}
      />
    );
  }
  if (kind === 'number')
    return (
      <Field
        {...more}
        type="number"
        {...{ min, max }}
        step={schema.multipleOf ?? (schema.type === 'integer' ? 1 : 'any')}
        defaultValue={value === undefined ? '' : String(value)}
      />
    );
  if (kind === 'json')
    return (
      <TextArea {...more} hint={`${hint} ${texts.asJson}`} value={value === undefined ? '' : JSON.stringify(value)} />
    );
  if (kind === 'object')
    return (
      <fieldset class="categories">
        <legend>{label}</legend>
        {description && <p class="hint">{description}</p>}
        {partsOf(part, root).map((one) => (
          <SchemaField key={one.path} of={one} root={root} />
        ))}
      </fieldset>
    );
  const text = typeof value === 'string' ? value : '';
  if (maxLength > longText) return <TextArea {...more} value={text} />;
  const type = inputs[schema.format ?? ''] ?? 'text';
  return <Field {...more} type={type} {...{ minLength }} maxLength={maxLength || undefined} defaultValue={text} />;
}

/** The value in the fields. What is left empty is left out. @throws Error naming the field that is no JSON. */
export function valueFrom(of: Schema, values: Values, path = 'payload'): unknown {
  return valueIn(rootOf(of, path), values, of);
}

function valueIn(part: Part, values: Values, root: Schema): unknown {
  const kind = kindOf(part);
  const text = values[part.path];
  if (kind === 'switch') return text !== undefined;
  if (kind === 'object') {
    const found = partsOf(part, root).map((one) => [one, valueIn(one, values, root)] as const);
    const given = found.filter(([, value]) => value !== undefined);
    if (given.length === 0 && !part.required) return undefined;
    return Object.fromEntries(given.map(([{ path }, value]) => [path.slice(part.path.length + 1), value]));
  }
  if (text === undefined || kind === 'text') return text;
  if (kind === 'number') return Number(text);
  return parsed(text, part.label);
}

/** @throws Error that names the field. */
export function parsed(text: string, label: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new Error(texts.noJson(label));
  }
}
