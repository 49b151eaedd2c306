/** All that the broker needs of the rest of the service. The services themselves, by what they do, are in `src/ports`. */
import type { Logger } from 'pino';
import type { MessageStore } from '../db/messages/store.ts';
import type { Registry } from '../db/registry/index.ts';
import type { Access } from './access.ts';
import type { AccountGate } from './account-gate.ts';
import type { Clock } from './clock.ts';
import type { Config } from './config.ts';
import type { HiddenNumbers } from './formats/hidden-numbers.ts';
import type { Positions } from './network/positions.ts';
import type { BridgeService } from './ports/bridges.ts';
import type { ContentService } from './ports/contents.ts';
import type { CredentialService } from './ports/credentials.ts';
import type { DeviceService, DeviceStates } from './ports/devices.ts';
import type { ProofService } from './ports/proofs.ts';

export type * from './ports/bridges.ts';
export type * from './ports/broker-state.ts';
export type * from './ports/contents.ts';
export type * from './ports/credentials.ts';
export type * from './ports/devices.ts';
export type * from './ports/downlink.ts';
export type * from './ports/enrollment.ts';
export type * from './ports/proofs.ts';
export type * from './ports/publisher.ts';
export type * from './ports/revocations.ts';
export type * from './ports/streams.ts';

/** What the broker stands on. */
export interface BrokerGround {
  config: Config;
  clock: Clock;
  /** By which sessions and messages are over. */
  ages: Clock;
  log: Logger;
  gate: AccountGate;
  access: Access;
  registry: Registry;
  messages: MessageStore;
  /** Positions in the message store, shown to readers of streams. */
  numbers: HiddenNumbers;
  proofs: ProofService;
  devices: DeviceStates;
}

/** The services behind the broker. */
export interface BrokerServices extends BrokerGround {
  /** Where messages of channels with a `streamBridgeDelivery` go. */
  bridges: BridgeService;
  contents: ContentService;
  credentials: CredentialService;
  devices: DeviceService;
  /** Where an address is; undefined when nobody knows. */
  positions: Pick<Positions, 'of'>;
}
