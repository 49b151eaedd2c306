/** Bodies whose sender says their digest (RFC 9530, and RFC 1864 before it): what came otherwise is 400, and nothing is kept of it. */
import { createHash } from 'node:crypto';
import { pipeline, Transform } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { invalid } from '../core/errors.ts';
import type { App } from './app.ts';

/** Names of RFC 9530, and of Node. Digests by others are not looked at. */
const algorithms: Record<string, string> = { 'sha-256': 'sha256', 'sha-512': 'sha512', sha: 'sha1', md5: 'md5' };

/** A digest that a header says; `value` in base64. */
interface DigestHeader {
  header: string;
  algorithm: string;
  value: string;
}

/** Looks at the digests of all bodies, as they were sent. */
export function checkDigests(app: App): void {
  app.addHook('preParsing', ({ headers }, _, payload, done) => {
    let said: DigestHeader[];
    try {
      said = digestsIn(headers);
    } catch (error) {
      return done(error as Error, undefined);
    }
    if (said.length === 0) return done(null, payload);
    const hashes = said.map((one) => ({ ...one, hash: createHash(one.algorithm) }));
    const checked = Object.assign(
      new Transform({
        transform(chunk: Buffer, _encoding, passOn) {
          checked.receivedEncodedLength += chunk.length;
          for (const { hash } of hashes) hash.update(chunk);
          passOn(null, chunk);
        },
        flush(end) {
          const wrong = hashes.find(({ hash, value }) => hash.digest('base64') !== value);
          end(wrong ? invalid(wrong.header, 'is not the digest of the body') : null);
        },
      }),
      { receivedEncodedLength: 0 },
    );
    pipeline(payload, checked, () => {});
    done(null, checked);
  });
}

/** @throws PlatformError for a header that says no digest. */
function digestsIn(headers: FastifyRequest['headers']): DigestHeader[] {
  const md5 = headers['content-md5'];
  const said: DigestHeader[] =
    md5 === undefined ? [] : [{ header: 'content-md5', algorithm: 'md5', value: String(md5).trim() }];
  // Of a part of a file, Repr-Digest is that of the whole file (RFC 9530, 3), which who takes the file compares.
  const isPart = headers['content-range'] !== undefined;
  for (const header of isPart ? ['content-digest'] : ['content-digest', 'repr-digest']) {
    const value = headers[header];
    if (value === undefined) continue;
    const members = [...String(value).matchAll(/(?:^|,)\s*([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]*={0,2}):\s*(?=,|$)/g)];
    if (members.length === 0) throw invalid(header, 'must be as sha-256=:BASE64:');
    for (const [, name = '', digest = ''] of members) {
      const algorithm = Object.hasOwn(algorithms, name) ? algorithms[name] : undefined;
      if (algorithm) said.push({ header, algorithm, value: digest });
    }
  }
  return said;
}
