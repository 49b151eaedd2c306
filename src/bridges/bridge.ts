/** A bridge on the wire: its answers, its bodies and its list. */
import { Type } from 'typebox';
import { bridgeColumns, bridgeForms } from '../../db/registry/records/bridges.ts';
import { DateText, Nullable, oneOf } from '../../db/registry/records.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  showCommon,
  showing,
  shownProperties,
} from '../entity/columns.ts';
import type { Sealing } from '../identity/secrets/sealing.ts';
import { headersBody, headersShown, openHeaders } from './headers.ts';
import { type BridgeRow, urlOwner } from './opening.ts';

const url = Type.String({
  maxLength: 2000,
  description:
    'Where the target is, with TLS: https:// of a webhook, tls:// of NATS, kafkas:// of a Kafka broker, https:// of the Kinesis endpoint, mqtts:// of an MQTT broker. No user and no password. It is stored sealed and never logged; answers show it without its query.',
});
const secret = Nullable(
  Type.String({
    minLength: 16,
    maxLength: 256,
    pattern: '^[!-~]+$',
    description:
      'The key that signs deliveries. It is stored encrypted and never shown. It is generated if it is left out.',
  }),
);
const credentials = Type.Record(Type.String({ maxLength: 64 }), Type.String({ minLength: 1, maxLength: 4000 }), {
  maxProperties: 10,
  description: 'How to log in at the target. Stored sealed and never shown.',
});
/** What is stored sealed, under names of its own. */
const sealed = {
  credentials: Type.Optional(credentials),
  headers: Type.Optional(headersBody),
  secret: Type.Optional(secret),
};
export const createBody = Type.Object({
  accountId: Type.String(),
  ...createProperties(bridgeColumns),
  form: Type.Optional(oneOf(bridgeForms, { description: 'How a message is written into a log; json when left out.' })),
  url,
  ...sealed,
});
export const updateBody = Type.Object({
  url: Type.Optional({
    ...url,
    description: 'The URL as it is shown keeps the stored one, with its query. Any other text replaces it.',
  }),
  ...changeProperties(bridgeColumns),
  ...sealed,
  secret: Type.Optional({
    ...secret,
    description: 'Null generates a new secret. If it is left out, the secret stays.',
  }),
});

export const bridgeShape = Type.Object({
  ...commonShape,
  ...shownProperties(bridgeColumns),
  url: Type.String({ description: 'Without its query, its user and its password.' }),
  urlHasHiddenPart: Type.Boolean({ description: 'Whether the stored URL has a query, a user or a password.' }),
  headers: headersShown,
});
export const withSecret = Type.Object({
  ...bridgeShape.properties,
  secret: Type.Optional(Type.String({ description: 'Only in the answer that created it.' })),
});
export const withStatus = Type.Object({
  ...bridgeShape.properties,
  status: Type.Object({
    pending: Type.Integer({ description: 'Pending guaranteed messages. 100000 means 100000 or more.' }),
    deadLetters: Type.Integer({ description: 'Dead letters, counted in the same way.' }),
    oldestPending: Nullable({
      ...DateText,
      description: 'When the oldest of the pending messages was put into the queue.',
    }),
    waiting: Type.Integer({ description: 'Best-effort messages that wait in memory.' }),
    dropped: Type.Integer({ description: 'Best-effort messages dropped since the start of the service.' }),
    expired: Type.Integer({
      description:
        'Messages that were not sent because their expiry (MQTT 5) was over, since the start of the service.',
    }),
    paused: Nullable({
      ...DateText,
      description: 'Since when nothing is sent, because a webhook has answered 410 for a day; null while it is tried.',
    }),
    lastDelivered: Nullable(DateText),
    lastFailure: Nullable(DateText),
    lastFailureReason: Nullable(
      Type.String({ description: 'What the target said, or what is wrong, and what to do.' }),
    ),
    note: Nullable(
      Type.String({ description: 'What the target cannot say of messages; null for a target that tells everything.' }),
    ),
  }),
});

export const bridgeListing = listingOf('bridges', bridgeColumns);

const showColumns = showing(bridgeColumns);

export function showBridge(around: { sealing: Sealing }, row: BridgeRow) {
  const url = urlOf(around, row);
  const shown = shownUrl(url);
  return {
    ...showCommon(row),
    ...showColumns(row),
    url: shown,
    urlHasHiddenPart: shown !== url,
    headers: openHeaders(around.sealing, row).map(({ name }) => ({ name })),
  };
}

/** A URL without what may be a secret. */
export function shownUrl(text: string): string {
  const url = new URL(text);
  if (!url.search && !url.username && !url.password && !url.hash) return text;
  return Object.assign(url, { search: '', username: '', password: '', hash: '' }).href;
}

export function urlOf({ sealing }: { sealing: Sealing }, { id, sealedUrl }: BridgeRow): string {
  return sealing.open(urlOwner(id), sealedUrl);
}
