/** Reads the headers of an upload. */
import type { IncomingHttpHeaders } from 'node:http';
import { invalid } from '../../core/errors.ts';

/** Where the bytes of a request belong: from `from` on, `length` of them if that was told, of `total` in all. */
export interface Part {
  from: number;
  length: number | undefined;
  total: number | undefined;
}

/** @throws PlatformError 400/106 for what is no `bytes a-b/total`. */
export function readPart(range: string | undefined, contentLength: string | undefined): Part {
  const sent = contentLength === undefined ? undefined : Number(contentLength);
  if (range === undefined) return { from: 0, length: sent, total: sent };
  const [, first, last, whole] = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15})$/.exec(range.trim()) ?? [];
  const [from, to, total] = [first, last, whole].map(Number) as [number, number, number];
  if (first === undefined || from > to || to >= total)
    throw invalid('content-range', 'must be bytes <first>-<last>/<total>');
  if (sent !== undefined && sent !== to - from + 1)
    throw invalid('content-range', `names ${to - from + 1} bytes, but Content-Length is ${sent}`);
  return { from, length: to - from + 1, total };
}

/**
 * The SHA-256 of the whole file in hex: of a `digest: sha-256=…` header, or of `repr-digest: sha-256=:…:`; undefined without one.
 * @throws PlatformError 400/106.
 */
export function readDigest(headers: IncomingHttpHeaders): string | undefined {
  const ofWhole = String(headers['repr-digest']);
  const given = headers.digest === undefined ? /sha-256=.*/.exec(ofWhole)?.[0] : String(headers.digest);
  if (given === undefined) return undefined;
  for (const one of given.split(',')) {
    const [, value = ''] = /^\s*sha-256=:?([^:\s]+):?\s*$/i.exec(one) ?? [];
    if (/^[0-9a-f]{64}$/i.test(value)) return value.toLowerCase();
    const bytes = Buffer.from(value, 'base64');
    if (/^[A-Za-z0-9+/_-]{43}=?$/.test(value) && bytes.length === 32) return bytes.toString('hex');
  }
  throw invalid('digest', 'must be sha-256=<base64 or hex>');
}

/** @throws PlatformError 400/106 for what could be a path, or is hidden. */
export function readFileName(name: string): string {
  if (/^(?!\.)[A-Za-z0-9._-]{1,64}$/.test(name)) return name;
  throw invalid('name', 'must be 1 to 64 of A-Z a-z 0-9 . _ - and not begin with a dot');
}
