/** What the log may say of an error in the way of a packet: its message alone, because it may carry what a client has sent. */
export function faultOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
