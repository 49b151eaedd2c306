/** Commands for several servers behind HAProxy: see docs/scaling.md. */
import { command } from '../command.ts';

const config = { value: 'FILE', about: 'cells.yaml', required: true, completes: 'files' } as const;
const json = { about: 'prints JSON' } as const;

const common = { group: 'Several servers' } as const;
const about = 'Asks the cells with SLIPWAY_METRICS_TOKEN, the same in every cell and here. See docs/scaling.md.';

export const cellsCommands = [
  command({
    ...common,
    words: 'cells check',
    summary: 'checks cells.yaml against the cells',
    about: `Prints the entries that its accounts need. ${about}`,
    flags: {
      config,
      dataDir: {
        value: 'CELL=DIR',
        about: 'reads the data directory of a cell instead of asking the cell',
        list: true,
      },
      offline: { about: 'does not ask the cells' },
      json,
    },
    exitCodes: {
      0: 'cells.yaml agrees with the cells',
      1: 'something must be corrected',
      2: 'wrong usage, or a wrong file',
    },
    examples: ['slipway cells check --config cells.yaml', 'slipway cells check --config cells.yaml --offline'],
    run: async (given) => (await import('../cells/check.ts')).cellsCheck(given),
  }),
  command({
    ...common,
    words: 'cells write',
    summary: 'writes haproxy.cfg and its map files',
    about: 'Prints the paths. HAProxy reads the files when it is reloaded. See docs/scaling.md.',
    flags: { config, out: { value: 'DIR', about: 'directory of the files', required: true, completes: 'directories' } },
    examples: ['slipway cells write --config cells.yaml --out /etc/haproxy/slipway'],
    run: async (given) => (await import('../cells/write.ts')).cellsWrite(given),
  }),
  command({
    ...common,
    words: 'cells status',
    summary: 'shows each cell: health, version, accounts, connections, messages',
    about,
    flags: { config, json },
    exitCodes: { 0: 'every cell is ready', 1: 'a cell is not ready', 2: 'wrong usage, or a wrong file' },
    examples: ['slipway cells status --config cells.yaml'],
    run: async (given) => (await import('../cells/status.ts')).cellsStatus(given),
  }),
];
