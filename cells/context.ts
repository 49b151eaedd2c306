import type { Broker } from '../broker/index.ts';
import type { BridgesContext } from '../src/bridges/context.ts';
import type { FactoryContext } from '../src/factory/context.ts';
import type { CellGate } from './gate.ts';

/** The services that work on whole accounts, and what decides where an account is. */
export interface CellsContext extends BridgesContext, FactoryContext {
  broker: Broker;
  gate: CellGate;
}
