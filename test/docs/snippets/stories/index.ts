/** The story of each page that has blocks to run. */
import type { Story } from '../story.ts';
import { bridges } from './bridges.ts';
import { enrollment } from './enrollment.ts';
import { factory } from './factory.ts';
import { identity } from './identity.ts';
import { messages } from './messages.ts';
import { api, firmware, mqtt, readme } from './newcomer.ts';
import { operations } from './operations.ts';
import { deviceSimulator, typescriptClient } from './programs.ts';
import { tutorial } from './tutorial.ts';

export const stories: Record<string, Story> = {
  'README.md': readme,
  'docs/api.md': api,
  'docs/bridges.md': bridges,
  'docs/enrollment.md': enrollment,
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
