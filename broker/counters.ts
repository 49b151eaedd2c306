/** What the broker has turned away since its start. */
export interface Counters {
  refusedPublishes: number;
  refusedSubscriptions: number;
  /** QoS 0 messages not sent to a subscriber that does not read. */
  shed: number;
  /** Messages that fell out of a full session queue. */
  dropped: number;
}

export function newCounters(): Counters {
  return { refusedPublishes: 0, refusedSubscriptions: 0, shed: 0, dropped: 0 };
}
