/** Messages to other systems. */
import { Type } from 'typebox';
import { column, hidden, json, Nullable, nameColumn, OptionalText, oneOf } from './columns.ts';

/** Kinds of targets, and the forms in which a message is written into a log. */
export const bridgeKinds = ['webhook', 'nats', 'kafka', 'kinesis', 'mqtt'] as const;
export type BridgeKind = (typeof bridgeKinds)[number];
export const bridgeForms = ['json', 'raw', 'envelope'] as const;
export type BridgeForm = (typeof bridgeForms)[number];

/** Where messages are sent on to. The URL may hold a password of its own: it is sealed as the secret is. */
export const bridgeColumns = {
  name: nameColumn,
  kind: column(Type.String(), {
    create: 'required',
    shown: oneOf(bridgeKinds),
    body: oneOf(bridgeKinds),
    filter: 'exact',
  }),
  sealedUrl: hidden(Type.String()),
  sealedSecret: hidden(OptionalText),
  sealedHeaders: hidden(OptionalText),
  ca: column(OptionalText, {
    create: 'optional',
    change: true,
    body: {
      ...Nullable(Type.String({ minLength: 1, maxLength: 16_384 })),
      description:
        'Certificates in PEM form that this bridge trusts instead of the public CAs, such as that of a private CA. Null is the public CAs.',
    },
  }),
  form: column(Type.String(), {
    create: 'optional',
    change: true,
    shown: oneOf(bridgeForms),
    body: oneOf(bridgeForms),
    initial: 'json',
  }),
  settings: json(
    Type.Record(Type.String(), Type.String()),
    Type.Record(Type.String({ maxLength: 64 }), Type.String({ maxLength: 500 }), {
      maxProperties: 10,
      description: 'Further settings of this kind of target: see docs/bridges.md.',
    }),
    { create: 'optional', change: true, initial: '{}' },
  ),
};
