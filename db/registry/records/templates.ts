/** Templates of devices, end-users, organizations and channels, and their custom fields. */
import { type Static, Type } from 'typebox';
import { maxRetentionDays } from './account.ts';
import { column, flag, hidden, Id, json, Nullable, OptionalText, oneOf } from './columns.ts';

/** Device, end-user and organization templates have one shape; `fields` holds values of device templates only. */
export const templateColumns = {
  name: column(Type.String(), {
    create: 'required',
    change: true,
    bounds: { minLength: 1, maxLength: 255 },
    filter: 'exact',
    sort: 'default',
  }),
  default: column(Type.Integer(), {
    shown: oneOf<string>(['true', 'false'], { description: 'A text, not a boolean.' }),
    form: 'flagText',
    filter: 'flag',
    sort: true,
  }),
  fields: hidden(Type.String()),
};

/** A command that a product declares. The parameters are a JSON Schema, which is stored as it comes. */
export const DeclaredCommand = Type.Object(
  {
    name: Type.String({
      minLength: 1,
      maxLength: 100,
      description: 'As commands have it. Each name is declared once.',
    }),
    title: Type.String({ minLength: 1, maxLength: 100, description: 'For people.' }),
    description: Type.Optional(Type.String({ maxLength: 1000 })),
    parameters: Type.Optional(
      Type.Unsafe<Record<string, unknown>>({
        type: 'object',
        additionalProperties: true,
        description:
          'JSON Schema (2020-12) of an object that payloads of this command must fit: 16 KiB at most, without pattern, and without $ref to elsewhere.',
      }),
    ),
    confirm: Type.Optional(Type.Boolean({ description: 'Pages ask before they send it.' })),
    forCustomers: Type.Optional(Type.Boolean({ description: 'Pages for customers show it. It gives no right.' })),
  },
  { title: 'DeclaredCommand' },
);
export type DeclaredCommand = Static<typeof DeclaredCommand>;
const DeclaredCommands = Type.Array(DeclaredCommand, {
  maxItems: 50,
  description: 'Commands that devices of the product understand. A command of such a name must fit its parameters.',
});
const Primary = Type.Object(
  { channel: Type.String({ maxLength: 100 }), category: Type.String({ maxLength: 255 }) },
  {
    description:
      'The value that matters of its devices: a channel of the template, and one of its declared categories. null is the point that came last.',
    additionalProperties: false,
  },
);
export type Primary = Static<typeof Primary>;

/** What device templates have besides. */
export const deviceTemplateColumns = {
  ...templateColumns,
  skipSameVersion: flag({
    create: 'optional',
    change: true,
    bounds: {
      description:
        'A device that runs the version of a firmware rollout already has succeeded without an update; true when left out.',
    },
    initial: 1,
  }),
  commands: json(DeclaredCommands, DeclaredCommands, { create: 'optional', change: true, initial: '[]' }),
  commandsOnly: flag({
    create: 'optional',
    change: true,
    bounds: { description: 'Whether commands that are not declared are refused; false when left out.' },
    initial: 0,
  }),
  primary: {
    ...json(Nullable(Primary), Nullable(Primary), { create: 'optional', change: true }),
    stored: OptionalText,
  },
};

/** Payload forms of a channel template: any form, one of them, or none, which is delivered and never read. */
export const payloadForms = ['auto', 'csv', 'json', 'senml', 'float32', 'none'] as const;
export type PayloadForm = (typeof payloadForms)[number];

/** How a page shows the values of a category. */
export const Category = Type.Object({
  name: Type.String({ maxLength: 255, description: 'The category of the points; empty for points without one.' }),
  label: Type.Optional(Type.String({ maxLength: 100 })),
  unit: Type.Optional(Type.String({ maxLength: 20 })),
  kind: oneOf(['number', 'state'], { description: 'A state lasts until the next point.' }),
});
export type Category = Static<typeof Category>;
export const maxCategories = 50;

export const channelTemplateColumns = {
  entityId: column(Id, { create: 'required', body: Type.String(), filter: 'exact', goesWith: true }),
  entityType: column(Type.String(), {
    create: 'required',
    shown: oneOf<string>(['deviceTemplate']),
    body: oneOf(['deviceTemplate']),
  }),
  name: column(Type.String(), {
    create: 'required',
    bounds: { minLength: 1, maxLength: 100 },
    filter: 'exact',
    sort: 'default',
  }),
  streamBridgeDelivery: column(Type.Integer({ minimum: 0, maximum: 2 }), {
    create: 'optional',
    change: true,
    bounds: { description: '0 do not send, 1 best effort, 2 guaranteed.' },
    initial: 0,
  }),
  persistenceType: column(Type.String(), {
    create: 'optional',
    shown: oneOf<string>(['simple', 'timeSeries']),
    body: oneOf(['simple', 'timeSeries']),
    initial: 'simple',
  }),
  retentionDays: column(Nullable(Type.Integer()), {
    create: 'optional',
    change: true,
    shown: Nullable(
      Type.Integer({ description: 'How long points are kept; 0 is forever, null as long as the account says.' }),
    ),
    bounds: { minimum: 0, maximum: maxRetentionDays, description: 'Days.' },
  }),
  payload: column(Type.String(), {
    create: 'optional',
    change: true,
    shown: oneOf(payloadForms, { description: 'The form of payloads.' }),
    body: oneOf(payloadForms, {
      description:
        'The form of payloads on a timeSeries channel. auto takes any; another one refuses to store the rest. none delivers payloads without reading or storing them.',
    }),
    initial: 'auto',
  }),
  categories: json(
    Type.Array(Category, { maxItems: maxCategories }),
    // It is stored as it comes, so nothing else may be in it.
    Type.Array(Type.Object(Category.properties, { additionalProperties: false }), {
      maxItems: maxCategories,
      description: 'How pages show the values of categories. Stored points, streams and exports do not change.',
    }),
    { create: 'optional', change: true, initial: '[]' },
  ),
};

/** A custom field. `templateId` is the account's id for fields of device templates themselves. */
export const customFieldColumns = {
  kind: hidden(Type.String()),
  templateId: hidden(Id, { goesWith: true }),
  name: column(Type.String({ minLength: 1, maxLength: 100 }), { filter: 'exact', sort: 'default' }),
  fieldType: column(Type.String(), { filter: 'exact', sort: true }),
  description: column(OptionalText, {}),
  required: flag({ filter: 'flag', sort: true }),
  default: column(OptionalText, { filter: 'exact' }),
  indexed: flag({}),
};

/** A value of an indexed custom field of the device with the number `row`, as filters compare it. */
export const FieldValueRecord = Type.Object({
  fieldId: Id,
  value: Type.Union([Type.String(), Type.Number()]),
  row: Type.Integer(),
});
