/** The kinds of targets, one module each. */
import type { BridgeKind } from '../../db/registry/records/bridges.ts';
import type { TargetKind } from './target.ts';
import { kafka } from './targets/kafka.ts';
import { kinesis } from './targets/kinesis.ts';
import { mqtt } from './targets/mqtt.ts';
import { nats } from './targets/nats.ts';
import { webhook } from './targets/webhook.ts';

const targetKinds: Record<BridgeKind, TargetKind> = { webhook, nats, kafka, kinesis, mqtt };

/** @throws RangeError for a kind that this version does not know, such as one of a newer database. */
export function kindOf(name: string): TargetKind {
  if (!Object.hasOwn(targetKinds, name)) throw new RangeError(`unknown kind of bridge: ${name}`);
  return targetKinds[name as BridgeKind];
}
