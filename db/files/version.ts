import { readFileSync } from 'node:fs';

/** Of this Slipway, as package.json has it. */
export const version = (
  JSON.parse(readFileSync(new URL(import.meta.resolve('#package')), 'utf8')) as { version: string }
).version;
