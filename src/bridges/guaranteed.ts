/** Level 2: what the outbox of one bridge holds on disk, delivered at least once. */
import type { OutboxChange } from '../../db/messages/outbox/rows.ts';
import type { MessageStore } from '../../db/messages/store.ts';
import { Delivery, type DeliveryServices } from './delivery.ts';
import type { Target } from './target.ts';
import type { Ending, PendingRows } from './window.ts';

/** Tries of one message, alone, while others got through: then it is the message's fault. */
const triesToBlame = 20;
const maxInProgress = 4;
/** Milliseconds until what could not be written about a delivery is written again. */
const rewriteAfter = 1000;

export interface GuaranteedServices extends DeliveryServices {
  messages: Pick<MessageStore, 'outbox' | 'recordOutbox'>;
  /** Milliseconds from the acceptance of a message until a failure makes it a dead letter, and for which it stays to be replayed. */
  retryAge: number;
  deliveredAge: number;
}

export class Guaranteed extends Delivery {
  readonly #ending: { stopped: boolean };

  constructor(bridgeId: string, target: Target, around: GuaranteedServices) {
    const ending = { stopped: false };
    const isToBlame = ({ blamed }: { blamed: number }) => blamed >= triesToBlame;
    const level = { bridgeId, guaranteed: true, maxInProgress, retryAge: around.retryAge, isToBlame };
    super(rowsOnDisk(bridgeId, around, ending), target, level, around);
    this.#ending = ending;
  }

  override stop(): void {
    this.#ending.stopped = true;
    super.stop();
  }
}

function rowsOnDisk(
  bridgeId: string,
  { messages, clock, deliveredAge }: GuaranteedServices,
  ending: { stopped: boolean },
): PendingRows {
  const { outbox } = messages;
  const changeFor = (sequences: number[], how: Ending): OutboxChange => {
    const about = { from: 'pending', sequences } as const;
    if (typeof how === 'object') return { kind: 'move', ...about, to: 'dead', time: clock.now(), ...how };
    if (how === 'expired' || deliveredAge === 0) return { kind: 'remove', ...about };
    return { kind: 'move', ...about, to: 'delivered', time: clock.now(), reason: null };
  };
  return {
    pending: (after, limit, bytes) => outbox.pending(bridgeId, after, limit, bytes),
    pendingOf: (deviceId, limit, bytes) => outbox.pendingOf(bridgeId, deviceId, limit, bytes),
    places: (after, limit) => outbox.places(bridgeId, 'pending', after, limit),
    end: (sequences, how) => {
      const change = changeFor(sequences, how);
      return new Promise((resolve) => {
        // Tried until it is on disk, for otherwise a restart would deliver again.
        const write = () =>
          messages.recordOutbox([change], (error) => {
            if (error && !ending.stopped) setTimeout(write, rewriteAfter).unref();
            else resolve();
          });
        write();
      });
    },
  };
}
