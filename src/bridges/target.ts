/** What a bridge leads to. A further kind of target implements `Target`; nothing else here knows what it is. */

/** A message as targets get it; `time` of its acceptance, in milliseconds since 1970. */
export interface BridgedMessage {
  /** The same at every try, so that whoever gets a message twice can tell. */
  id: string;
  topic: string;
  accountId: string;
  deviceId: string;
  organizationId: string | null;
  deviceTemplateId: string;
  channel: string;
  qos: number;
  time: number;
  payload: Uint8Array;
}

/**
 * What became of a batch, all or nothing. `retry` is for later: `about` the target itself, whatever it is sent, or
 * maybe about something in this batch; `after` in milliseconds, when the target has said so. `refused` is for good.
 * Reasons are shown and logged: they hold nothing of addresses, secrets and payloads.
 */
export type Outcome =
  | { result: 'accepted' }
  | { result: 'retry'; about: 'target' | 'batch'; reason: string; after?: number }
  | { result: 'refused'; reason: string };

export interface Target {
  /** Never rejects. The messages of a device are in order, and none of them is in another batch under way. */
  send(batch: readonly BridgedMessage[]): Promise<Outcome>;
  /** Ends what is under way. */
  close(): void;
}

/** A message as JSON shows it. */
export function showMessage({ payload, time, ...message }: BridgedMessage) {
  const { id, topic, accountId, deviceId, organizationId, deviceTemplateId, channel, qos } = message;
  const names = { id, topic, accountId, deviceId, organizationId, deviceTemplateId, channel, qos };
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
  return { ...names, time: new Date(time).toISOString(), payloadBase64: bytes.toString('base64') };
}
