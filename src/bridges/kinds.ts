/** The kinds of targets, one module each. */
import type { BridgeKind } from '../../db/registry/records/bridges.js';
import type { TargetKind } from './target.js';
import { kafka } from './targets/kafka.js';
import { kinesis } from './targets/kinesis.js';
import { mqtt } from './targets/mqtt.js';
import { nats } from './targets/nats.js';
import { webhook } from './targets/webhook.js';

const targetKinds: Record<BridgeKind, TargetKind> = { webhook, nats, kafka, kinesis, mqtt };

/** @throws RangeError for a kind that this version does not know, such as one of a newer database. */
export function kindOf(name: string): TargetKind {
  if (!Object.hasOwn(targetKinds, name)) throw new RangeError(`unknown kind of bridge: ${name}`);
  return targetKinds[name as BridgeKind];
}
