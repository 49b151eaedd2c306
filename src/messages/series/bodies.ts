/** Bodies of messages, for the OpenAPI document. They are read as bytes, so no schema checks them. */
import { type TSchema, Type } from 'typebox';
import { textLimit } from '../payload/reading.ts';

/** The largest value of SLIPWAY_MQTT_MAX_PAYLOAD_BYTES and of SLIPWAY_MQTT_MAX_POINTS. A service may allow less. */
const whole = { maxLength: 268_435_455 };
const many = { maxItems: 1_000_000 };
const text = { maxLength: textLimit };

/** A payload of any media type, passed on as it is. */
export const payloadBody = Type.String({
  ...whole,
  title: 'Payload',
  contentMediaType: 'application/octet-stream',
  description: 'The payload, of any media type. It may be empty.',
  examples: ['21.5'],
});

const senmlRecord = Type.Object(
  {
    bn: Type.Optional(Type.String({ ...text, description: 'Base name, in front of the names of all records.' })),
    bt: Type.Optional(Type.Number({ description: 'Base time, in seconds since 1970.' })),
    n: Type.Optional(Type.String({ ...text, description: 'The name, which becomes the category.' })),
    t: Type.Optional(Type.Number({ description: 'Seconds: since 1970, or relative to bt.' })),
    u: Type.Optional(Type.String({ ...text, description: 'The unit, which is not stored.' })),
    v: Type.Optional(Type.Number()),
    vs: Type.Optional(Type.String(text)),
    vb: Type.Optional(Type.Boolean()),
  },
  { title: 'SenmlRecord', examples: [{ n: 'inside', t: 1772366400, v: 21.5 }] },
);
const senml = {
  title: 'Senml',
  description: 'SenML of RFC 8428, or its records as `e` of an object.',
  anyOf: [{ ...many, type: 'array', items: senmlRecord }, Type.Object({ e: Type.Array(senmlRecord, many) })],
  examples: [[{ n: 'inside', t: 1772366400, v: 21.5 }]],
};

/** Bodies of POST /data/{topic} by media type. Text is told apart by what it says; a float is taken from bytes only. */
export const pointBodies: Record<string, TSchema> = {
  'text/csv': Type.String({
    ...whole,
    title: 'CsvPoints',
    description:
      'Lines `timestamp,category,numericValue,stringValue`. The timestamp is ISO 8601 or milliseconds, or absent. A first line with these names is skipped.',
    examples: ['2026-03-01T12:00:00.000Z,inside,21.5,\n'],
  }),
  'application/json': {
    title: 'JsonPoints',
    description: 'A number, an object of numbers, texts and booleans by category, or SenML.',
    anyOf: [
      { type: 'object', additionalProperties: { ...text, type: ['number', 'string', 'boolean'] } },
      { type: 'number' },
      senml,
    ],
    examples: [{ inside: 21.5, outside: 4 }],
  } as TSchema,
  'application/senml+json': senml as TSchema,
  'application/octet-stream': Type.String({
    ...whole,
    title: 'PointBytes',
    contentMediaType: 'application/octet-stream',
    description: 'Any of the other forms, or four bytes: a little-endian float.',
  }),
};
