/** Holds the log of every service in the tests against every secret that a test has sent or been given. */

/** Properties of bodies that are secrets, in requests and in answers. */
const secretNames = new Set([
  'appToken',
  'associationCode',
  'clientSecret',
  'csrfToken',
  'idmUserPassword',
  'jwt',
  'mfaToken',
  'newPassword',
  'oldPassword',
  'password',
  'passwordResetToken',
  'recoveryCodes',
  'resetToken',
  'secret',
  'token',
]);
/** What is shorter may be in a line by chance. */
const shortest = 8;

export class SecretWatch {
  readonly #secrets = new Set<string>();
  readonly #lines: string[] = [];

  /** One line of the log. */
  write(line: string): void {
    this.#lines.push(line);
  }

  /** A secret by itself. */
  add(secret: string | null | undefined): void {
    if (secret && secret.length >= shortest) this.#secrets.add(secret);
  }

  /** The secrets in a body, however deep. */
  look(body: unknown): void {
    if (typeof body !== 'object' || body === null) return;
    for (const [name, value] of Object.entries(body)) {
      if (!secretNames.has(name)) this.look(value);
      else for (const secret of [value].flat()) if (typeof secret === 'string') this.add(secret);
    }
  }

  /** What has been written and sent since the last check. @throws Error naming the first line that holds a secret. */
  check(): void {
    const log = this.#lines.join('');
    for (const secret of this.#secrets)
      if (log.includes(secret)) {
        const line = this.#lines.find((one) => one.includes(secret));
        throw new Error(`a secret is in the log: ${line?.replaceAll(secret, '<secret>')}`);
      }
    this.#lines.length = 0;
    this.#secrets.clear();
  }
}
