/** Bodies that are compressed: decoded where a body is a payload, refused elsewhere. */
import { PassThrough, pipeline, type Transform } from 'node:stream';
import { createBrotliDecompress, createInflate, createUnzip } from 'node:zlib';
import { invalid, PlatformError } from '../core/errors.ts';
import type { App } from './app.ts';

const decoders: Record<string, () => Transform> = {
  gzip: createUnzip,
  'x-gzip': createUnzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};

/**
 * Decodes the bodies of routes that say `decodes`. Other compressed bodies, and other codings, are 415/106 naming the header;
 * what cannot be decoded is 400/106. What is too large once decoded is 413, like a body that is sent uncompressed.
 */
export function decodeBodies(app: App): void {
  app.addHook('preParsing', ({ headers, routeOptions }, reply, payload, done) => {
    const coding = headers['content-encoding']?.trim().toLowerCase() || 'identity';
    if (coding === 'identity') return done(null, payload);
    const decodes = routeOptions.config?.decodes === true;
    const decoder = decodes && Object.hasOwn(decoders, coding) ? decoders[coding]?.() : undefined;
    if (!decoder) return done(unsupported(decodes), undefined);
    // Fastify compares it with Content-Length, which is that of what was sent.
    const decoded = Object.assign(new PassThrough(), { receivedEncodedLength: 0 });
    payload.on('data', (chunk: Buffer) => {
      decoded.receivedEncodedLength += chunk.length;
    });
    pipeline(payload, decoder, decoded, (error) => {
      if (error) decoded.destroy(invalid('content-encoding', `says ${coding}, but the body cannot be decoded as that`));
    });
    // What is too large is answered before it has been decoded.
    reply.raw.once('close', () => decoder.destroy());
    done(null, decoded);
  });
}

function unsupported(decodes: boolean): PlatformError {
  const message = decodes ? `must be one of identity, ${Object.keys(decoders).join(', ')}` : 'is not supported here';
  return new PlatformError('mediaType', { details: [{ path: 'content-encoding', message }] });
}
