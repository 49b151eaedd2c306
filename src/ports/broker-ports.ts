/** All that the broker needs of the rest of the service. The services themselves, by what they do, are in `src/ports`. */
import type { Logger } from 'pino';
import type { MessageStore } from '../../db/messages/store.ts';
import type { Registry } from '../../db/registry/index.ts';
import type { Access } from '../core/access.ts';
import type { AccountGate } from '../core/account-gate.ts';
import type { Clock } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import type { HiddenNumbers } from '../core/formats/hidden-numbers.ts';
import type { Positions } from '../core/network/positions.ts';
import type { BridgeService } from './bridges.ts';
import type { ContentService } from './contents.ts';
import type { CredentialService } from './credentials.ts';
import type { DeviceService, DeviceStates } from './devices.ts';
import type { ProofService } from './proofs.ts';

export type * from './bridges.ts';
export type * from './broker-state.ts';
export type * from './contents.ts';
export type * from './credentials.ts';
export type * from './devices.ts';
export type * from './downlink.ts';
export type * from './enrollment.ts';
export type * from './proofs.ts';
export type * from './publisher.ts';
export type * from './revocations.ts';
export type * from './streams.ts';

/** What the broker stands on. */
export interface BrokerBase {
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
export interface BrokerServices extends BrokerBase {
  /** Where messages of channels with a `streamBridgeDelivery` go. */
  bridges: BridgeService;
  contents: ContentService;
  credentials: CredentialService;
  devices: DeviceService;
  /** Where an address is; undefined when nobody knows. */
  positions: Pick<Positions, 'of'>;
}
