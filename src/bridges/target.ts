/** The target of a bridge. Each kind is a `TargetKind` in targets/; nothing else here knows the kinds. */
import { contentBytes, type OutboxMessage } from '../../db/messages/outbox/rows.ts';
import { type BridgeForm, bridgeForms } from '../../db/registry/records/bridges.ts';
import type { Clock } from '../core/clock.ts';
import { type ShownProperties, showProperties } from '../core/formats/message-properties.ts';
import { formatTopic } from '../core/topics.ts';
import type { Refusal } from './refusing.ts';

/** How a message is written into a distributed log (records.ts). */
export const forms = bridgeForms;
export type Form = BridgeForm;

/** A message as targets get it. Anyone who gets it twice can tell by its id. */
export interface BridgedMessage extends Omit<OutboxMessage, 'properties' | 'expires'> {
  topic: string;
  accountId: string;
  /** Bytes of payload and properties. */
  size: number;
  /** What an MQTT 5 client sent along; `messageExpiry` is what was left when it was handed to its target. */
  properties?: ShownProperties;
  /** Made by `POST /bridges/{id}/test`, not by a device. */
  test?: true;
}

/**
 * To be sent again later, after `after` milliseconds if the target has said so. `refusal`: waiting alone will most likely not help.
 * Reasons hold nothing of addresses, secrets and payloads.
 */
export interface Retry {
  result: 'retry';
  /** The target itself, whatever it is sent; these messages, as it has said; or maybe something in them. */
  about: 'target' | 'messages' | 'batch';
  reason: string;
  after?: number;
  refusal?: Refusal;
}

/** What became of messages that the target does not tell apart. `refused` is for good. */
export type Fate = { result: 'accepted' } | Retry | { result: 'refused'; reason: string };

/** Messages of a batch, by their ids, and what became of them. */
export type Part = Fate & { ids: readonly string[] };

/** What became of a batch, part by part. Messages in no part are sent again at once. */
export type Outcome = readonly Part[];

/** The same for all messages of a batch. */
export function wholly(batch: readonly Pick<BridgedMessage, 'id'>[], fate: Fate): Outcome {
  return [{ ids: batch.map(({ id }) => id), ...fate }];
}

/** The level of a batch: only a guaranteed one waits until the target has stored it. */
export interface SendOptions {
  guaranteed: boolean;
}

export interface Target {
  /** Never rejects. The messages of a device are in order, and none of them is in another batch under way. */
  send(batch: readonly BridgedMessage[], options: SendOptions): Promise<Outcome>;
  /** Ends what is under way. */
  close(): void;
  /** What the target cannot say of messages, for people to read; undefined if there is nothing. */
  readonly note?: string | undefined;
}

/** The parameters of every kind of target. */
export interface TargetServices {
  clock: Clock;
  headerPrefix: string;
  /** Milliseconds that a target may take to answer. */
  timeout: number;
  allowPrivate: boolean;
}

/** One bridge as its target sees it. `settings` and `credentials` have been checked when the bridge was written. */
export interface TargetSpec {
  bridgeId: string;
  url: URL;
  form: Form;
  settings: Record<string, string>;
  credentials: Record<string, string>;
  /** Headers of requests besides those of the service; a webhook alone has some. */
  headers?: Record<string, string>;
  /** Certificates that are trusted instead of the public CAs. */
  ca?: string | undefined;
}

/** A kind of target: what a bridge of this kind may say, and how its target is opened. */
export interface TargetKind {
  /** Packages that must be installed next to Slipway; each is loaded with the first bridge of its kind. */
  libraries: readonly string[];
  forms: readonly Form[];
  /** Schemes of URLs with TLS, and without it, which only SLIPWAY_ALLOW_PRIVATE_TARGETS permits. */
  secure: readonly string[];
  plain: readonly string[];
  /** Names of settings: whether each is required, and the form of its value. */
  settings: Record<string, { required: boolean; pattern: RegExp; form: string }>;
  /** Names of credentials, all texts. */
  credentials: readonly string[];
  open(spec: TargetSpec, around: TargetServices): Target;
}

/** A message as JSON shows it. */
export function showMessage({ payload, time, properties, test, ...message }: BridgedMessage) {
  const { id, topic, accountId, deviceId, organizationId, deviceTemplateId, channel, qos } = message;
  const names = { id, topic, accountId, deviceId, organizationId, deviceTemplateId, channel, qos };
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
  return {
    ...names,
    time: new Date(time).toISOString(),
    payloadBase64: bytes.toString('base64'),
    ...(properties && { properties }),
    ...(test && { test }),
  };
}

/** A message with the topic that it was published on; `now` in milliseconds since 1970. */
export function nameMessage(topicRoot: string, accountId: string, message: OutboxMessage, now: number): BridgedMessage {
  const { id, deviceId, organizationId, deviceTemplateId, channel, qos, time, payload } = message;
  const topic = formatTopic(topicRoot, accountId, deviceId, channel);
  const properties = showProperties(message, now);
  return {
    id,
    topic,
    accountId,
    deviceId,
    organizationId,
    deviceTemplateId,
    channel,
    qos,
    time,
    payload,
    size: contentBytes(message),
    ...(properties && { properties }),
  };
}
