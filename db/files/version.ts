import { readFileSync } from 'node:fs';

/** Of this Slipway, as package.json has it, two folders up from dist/db. */
export const version = (
  JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
