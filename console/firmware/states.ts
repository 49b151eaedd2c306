/** How the states of rollouts, and of devices in one, are coloured. */
type Kind = 'good' | 'bad' | 'warn' | undefined;

/** In the order in which a device comes through them. */
export const deliveryStates = [
  'succeeded',
  'installing',
  'downloaded',
  'downloading',
  'offered',
  'pending',
  'failed',
  'timedOut',
  'superseded',
  'cancelled',
] as const;

export const deliveryKinds: Record<(typeof deliveryStates)[number], Kind> = {
  succeeded: 'good',
  installing: 'warn',
  downloaded: 'warn',
  downloading: 'warn',
  offered: undefined,
  pending: undefined,
  failed: 'bad',
  timedOut: 'bad',
  superseded: undefined,
  cancelled: undefined,
};

export const rolloutKinds: Record<'scheduled' | 'running' | 'paused' | 'finished' | 'cancelled', Kind> = {
  scheduled: undefined,
  running: 'good',
  paused: 'warn',
  finished: undefined,
  cancelled: undefined,
};
