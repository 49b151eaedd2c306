/** What happens in between, made to happen every time. */
import type { Service } from './service.ts';

/** Runs when the registry is about to begin its next transaction, in the middle of the code that asked for it. */
export function beforeNextTransaction({ server }: Service, work: () => Promise<unknown>): void {
  const { registry } = server.ctx;
  const original = registry.transaction;
  registry.transaction = async (inner) => {
    registry.transaction = original;
    await work();
    return original.call(registry, inner) as never;
  };
}
