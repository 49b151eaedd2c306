/**
 * What the log says of an error that a packet may have caused: its message, because the rest of it may carry what a client has sent. Faults of
 * our own, as of a store, are logged whole.
 */
export function faultOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
