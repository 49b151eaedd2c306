/** Hosts that name the machine on which they are read. */

/** `localhost`, 127.0.0.0/8 and ::1, with or without brackets. */
export function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/i.test(host);
}

/** The address that stands for all addresses of a machine. */
export function isUnspecified(host: string): boolean {
  return /^(0\.0\.0\.0|::|\[::\])$/.test(host);
}
