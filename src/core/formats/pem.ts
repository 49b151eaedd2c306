/** PEM (RFC 7468): blocks of base64 between two lines that say what is in them. */

export interface PemBlock {
  /** What it says to be, such as CERTIFICATE. */
  label: string;
  /** All of it, as it stands there. */
  text: string;
  der: Buffer;
}

/** The blocks of a text, without what stands around them. */
export function pemBlocks(text: string): PemBlock[] {
  const found = text.matchAll(/-----BEGIN ([A-Z0-9 ]+)-----([^-]+)-----END [A-Z0-9 ]+-----/g);
  return [...found].map(([text, label = '', body = '']) => ({ label, text, der: Buffer.from(body, 'base64') }));
}

/** The certificates of a text, each as it stands there. */
export function pemCertificates(text: string): string[] {
  return pemBlocks(text).flatMap((block) => (block.label === 'CERTIFICATE' ? [block.text] : []));
}

export function pemOf(label: string, der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
}
