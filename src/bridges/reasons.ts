/** Why a target takes no messages, and what to do about it: a sentence for each kind of target and each fault. */
import type { BridgeKind } from '../../db/registry/records/bridges.ts';

export const faults = [
  'notThere',
  'wrongPort',
  'wrongProtocol',
  'noTls',
  'unknownCa',
  'expired',
  'wrongName',
  'wrongPassword',
  'notPermitted',
  'noTopic',
  'tooLarge',
  'throttled',
  'privateAddress',
] as const;
export type Fault = (typeof faults)[number];

const connecting = {
  notThere: 'The host of the URL was not found or cannot be reached. Check the name in the URL.',
  wrongPort: 'Nothing accepts connections at the port of the URL. Check the port, and that the target runs.',
  unknownCa:
    'The target has a certificate of an unknown CA. Give the bridge this CA (ca), or the target a certificate of a public CA.',
  expired: 'The certificate of the target has expired. Renew it.',
  wrongName: 'The certificate of the target is for another host. Name a host of the certificate in the URL.',
  privateAddress: 'not a public address; only SLIPWAY_ALLOW_PRIVATE_TARGETS=true allows private ones',
};

export const sentences: Record<BridgeKind, Record<Fault, string>> = {
  webhook: {
    ...connecting,
    wrongProtocol: 'What answers at the port of the URL is not an HTTP server. Check the port.',
    noTls: 'What answers at the port of the URL does not use TLS. Check the port.',
    wrongPassword:
      'The webhook asks for a login. Check the headers and the URL of the bridge, or have it check the signature instead.',
    notPermitted: 'The webhook does not permit the request. Check its rules for this URL.',
    noTopic: 'The webhook does not exist at this URL. Check the path of the URL.',
    tooLarge: 'The message is larger than the webhook takes. Raise its limit for bodies.',
    throttled: 'The webhook gets too many requests. Raise its limit.',
  },
  nats: {
    ...connecting,
    wrongProtocol: 'What answers at the port of the URL is not a NATS server. Check the port.',
    noTls: 'The NATS server does not use TLS at this port. Switch TLS on there, or check the port.',
    wrongPassword: 'The NATS server does not accept the login. Check username and password, or the token.',
    notPermitted: 'The user may not publish on this subject. Permit it in the NATS server.',
    noTopic: 'no stream has this subject: create a stream that takes it, and switch JetStream on in the server',
    tooLarge: 'The message is larger than the stream or the NATS server takes. Raise max_msg_size or max_payload.',
    throttled: 'The stream is full or takes no more messages now. Raise its limits.',
  },
  kafka: {
    ...connecting,
    wrongProtocol: 'What answers at the port of the URL is not a Kafka broker, or wants TLS. Check port and scheme.',
    noTls: 'The Kafka broker does not use TLS at this port. Check the port of its TLS listener.',
    wrongPassword: 'The Kafka broker does not accept the login. Check username, password and mechanism.',
    notPermitted: 'The user may not write to the topic. Permit it in the ACLs of Kafka.',
    noTopic: 'The topic does not exist. Create it, or change settings.topic.',
    tooLarge: 'The message is larger than the topic takes. Raise max.message.bytes.',
    throttled: 'Too few replicas of the topic are there, or its broker is busy. Check the cluster.',
  },
  kinesis: {
    ...connecting,
    wrongProtocol: 'What answers at the port of the URL is not a Kinesis endpoint. Check the URL.',
    noTls: 'What answers at the port of the URL does not use TLS. Check the port.',
    wrongPassword: 'Kinesis does not accept the access key. Check accessKeyId, secretAccessKey and sessionToken.',
    notPermitted: 'The access key may not write to the stream. Permit kinesis:PutRecords.',
    noTopic: 'The stream does not exist. Create it, or change settings.stream and settings.region.',
    tooLarge: 'The message is larger than a record may be. Send smaller messages.',
    throttled: 'A shard gets more than it takes. Add shards to the stream.',
  },
  mqtt: {
    ...connecting,
    wrongProtocol: 'What answers at the port of the URL is not an MQTT broker. Check the port.',
    noTls: 'The broker does not use TLS at this port. Check the port of its TLS listener.',
    wrongPassword: 'The broker does not accept the login. Check username, password and settings.clientId.',
    notPermitted: 'The user may not publish on this topic. Permit it in the access list of the broker.',
    noTopic: 'The broker does not take this topic. Check settings.prefix.',
    tooLarge: 'The message is larger than the broker takes. Raise its limit.',
    throttled: 'The broker has reached a limit of this user. Raise it.',
  },
};

/** Codes of connections, and of protocols, that say which fault it is. */
const codes: Array<[Fault, RegExp]> = [
  ['privateAddress', /^NOT_PUBLIC$/],
  ['notThere', /^(ENOTFOUND|EAI_\w+|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL|ETIMEDOUT)$/],
  ['wrongPort', /^ECONNREFUSED$/],
  ['expired', /^CERT_HAS_EXPIRED$/],
  ['unknownCa', /^(UNABLE_TO_\w+|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|CERT_SIGNATURE_FAILURE)$/],
  ['wrongName', /^ERR_TLS_CERT_ALTNAME_INVALID$/],
  ['noTls', /^(NO_TLS|ERR_SSL_\w+|EPROTO)$/],
  ['wrongProtocol', /^(NOT_NATS|NOT_MQTT|NOT_KAFKA|HPE_\w+)$/],
];

/** The sentence of a fault, with the code that it was found by. */
export function sentenceOf(kind: BridgeKind, fault: Fault, code?: string): string {
  const sentence = sentences[kind][fault];
  return code === undefined || fault === 'privateAddress' ? sentence : `${sentence} (${code})`;
}

/** What a code of a failed connection means, or the code itself. */
export function explainCode(kind: BridgeKind, code: string): string {
  const fault = codes.find(([, form]) => form.test(code))?.[0];
  if (fault) return sentenceOf(kind, fault, code);
  return code === 'NO_ANSWER' ? 'no answer in time' : code;
}
