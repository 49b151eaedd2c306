/**
 * What the log may say of an error that has been through Aedes, which hangs whole packets on its errors, a CONNECT with
 * its password among them: never the error itself.
 */
export function faultOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
