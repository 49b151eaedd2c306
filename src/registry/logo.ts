/** The logo of an account: a data URL with a small SVG or PNG. */
import { cleanSvg } from './svg.ts';

/** Bytes of a logo, decoded. */
export const maxLogoBytes = 65_536;
/** Width and height of a PNG: few bytes can be many pixels, each of which takes four bytes where it is shown. */
const maxPixels = 2048;

const dataUrl = /^data:image\/(svg\+xml|png)(?:;charset=utf-8)?(;base64)?,/i;
const pngBeginning = Buffer.from('\x89PNG\r\n\x1a\n\0\0\0\rIHDR', 'latin1');

/** `tooLarge` for more than `maxLogoBytes`. */
export type ReadLogo = { logo: string } | { problem: string } | 'tooLarge';

/** The logo as it is kept and shown: of an SVG only what draws. */
export function readLogo(given: string): ReadLogo {
  const [beginning, type, isBase64] = dataUrl.exec(given) ?? [];
  if (beginning === undefined || type === undefined)
    return { problem: 'must be a data URL of an SVG or a PNG: data:image/png;base64,…' };
  const bytes = decode(given.slice(beginning.length), isBase64 !== undefined);
  if (!bytes) return { problem: 'is not well-formed' };
  if (bytes.length > maxLogoBytes) return 'tooLarge';
  return type.toLowerCase() === 'png' ? readPng(bytes) : readSvg(bytes);
}

function decode(text: string, isBase64: boolean): Buffer | undefined {
  if (isBase64) return /^[A-Za-z0-9+/]*={0,2}$/.test(text) ? Buffer.from(text, 'base64') : undefined;
  try {
    return Buffer.from(decodeURIComponent(text));
  } catch {
    return undefined;
  }
}

function readPng(bytes: Buffer): ReadLogo {
  if (bytes.length < pngBeginning.length + 8 || !bytes.subarray(0, pngBeginning.length).equals(pngBeginning))
    return { problem: 'is not a PNG' };
  const sides = [bytes.readUInt32BE(pngBeginning.length), bytes.readUInt32BE(pngBeginning.length + 4)];
  if (sides.some((side) => side === 0 || side > maxPixels))
    return { problem: `must have at most ${maxPixels} × ${maxPixels} pixels` };
  return { logo: `data:image/png;base64,${bytes.toString('base64')}` };
}

function readSvg(bytes: Buffer): ReadLogo {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    const clean = Buffer.from(cleanSvg(text));
    return clean.length > maxLogoBytes ? 'tooLarge' : { logo: `data:image/svg+xml;base64,${clean.toString('base64')}` };
  } catch (error) {
    return { problem: error instanceof TypeError ? 'must be UTF-8' : (error as Error).message };
  }
}
