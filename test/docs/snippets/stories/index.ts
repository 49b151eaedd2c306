/** The story of each page that has blocks to run. */
import type { Story } from '../story.js';
import { bridges } from './bridges.js';
import { factory } from './factory.js';
import { identity } from './identity.js';
import { messages } from './messages.js';
import { api, firmware, mqtt, readme } from './newcomer.js';
import { operations } from './operations.js';
import { deviceSimulator, typescriptClient } from './programs.js';
import { tutorial } from './tutorial.js';

export const stories: Record<string, Story> = {
  'README.md': readme,
  'docs/api.md': api,
  'docs/bridges.md': bridges,
  'docs/factory.md': factory,
  'docs/firmware.md': firmware,
  'docs/identity.md': identity,
  'docs/messages.md': messages,
  'docs/mqtt.md': mqtt,
  'docs/operations.md': operations,
  'docs/tutorial.md': tutorial,
  'examples/device-simulator/README.md': deviceSimulator,
  'examples/typescript-client/README.md': typescriptClient,
};
