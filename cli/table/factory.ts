/** Commands that call a server: for the factory, for firmware, and for tests of a unit. */
import { flashFormats } from '../../src/factory/provisioning/unit.ts';
import { command } from '../command.ts';
import { forTheLine } from '../guards.ts';

/** Flags of every command that calls a server. */
export const connection = {
  url: { value: 'URL', about: 'the server', otherwise: 'SLIPWAY_URL, that of slipway login, or http://127.0.0.1:3000' },
  token: {
    value: 'TOKEN',
    about: 'a JWT, or the appToken of a station with SLIPWAY_APP_ID and SLIPWAY_ACCOUNT_ID',
    otherwise: 'SLIPWAY_TOKEN, or that of slipway login',
  },
  ca: { value: 'FILE', about: 'PEM file of the CA of the server', completes: 'files' },
  retryFor: {
    value: 'SECONDS',
    about: 'how long a server that does not answer is tried',
    whole: { min: 0, max: 86_400, default: 60 },
  },
  json: { about: 'prints JSON' },
} as const;

/** What is written for a unit, and where it belongs. */
const units = {
  format: { value: 'FORMAT', about: 'format of the flash files', choices: flashFormats },
  template: { value: 'NAME', about: 'name or id of the device template', otherwise: "the station's, or the only one" },
  organization: { value: 'NAME', about: 'name or id of the organization', otherwise: "the station's, or the root" },
  labels: {
    value: 'FORM',
    about: 'writes a label for each unit; without FORM as svg',
    choices: ['none', 'svg', 'png', 'html'],
    bare: 'svg',
    otherwise: 'none',
  },
  broker: { value: 'URL', about: 'broker in the flash files, such as mqtts://host:8883', otherwise: "the server's" },
  certify: { value: 'PROGRAM', about: 'program that makes a certificate for each unit', completes: 'files' },
} as const;

const onServer = 'Calls a server: see docs/factory.md.';
const exitCodes = {
  0: 'all done',
  1: 'some rows or units failed',
  2: 'wrong usage or input',
  3: 'server, network or disk: run it again',
  4: 'refused: permissions, an expired or exhausted station',
  130: 'Ctrl-C: run it again',
};

/** What commands that call a server have in common. */
export const common = { group: 'Factory and firmware', ignoresEmpty: true, exitCodes } as const;

export const factoryCommands = [
  command({
    ...common,
    words: 'provision',
    summary: 'creates the units of a CSV file, with their flash files',
    about: `Run it again after an interruption: each unit is created once, and none is lost. ${onServer}`,
    flags: {
      csv: {
        value: 'FILE',
        about: 'CSV file with the column serialNumber, and any field',
        required: true,
        completes: 'files',
      },
      ...units,
      out: { value: 'DIR', about: 'directory of the flash files', completes: 'directories' },
      concurrency: {
        value: 'N',
        about: 'jobs at the same time',
        whole: { min: 1, max: 16, default: 2 },
      },
      chunkRows: { value: 'N', about: 'rows of one job', whole: { min: 1, max: 50_000, default: 5000 } },
      dryRun: { about: 'checks the rows and creates nothing; --format and --out are not needed' },
      again: { value: 'SERIAL', about: 'gives a unit that was made here a new secret and new files', list: true },
      takeOver: { about: 'finishes jobs whose token no longer exists, with new secrets for their units' },
      ...connection,
    },
    examples: [
      'slipway provision --csv units.csv --dry-run',
      'slipway provision --csv units.csv --format esp-nvs-csv --out units --labels --ca ca.pem',
    ],
    run: (given) => forTheLine(async () => (await import('../line/provision.ts')).provision(given)),
  }),
  command({
    ...common,
    words: 'provision one',
    summary: 'creates one unit and prints the path of its flash file',
    about: onServer,
    flags: {
      serial: { value: 'SERIAL', about: 'serial number', required: true },
      field: { value: 'NAME=VALUE', about: 'a field of the unit', list: true },
      ...units,
      format: { ...units.format, required: true },
      out: { value: 'DIR', about: 'directory of the flash files', required: true, completes: 'directories' },
      print: { about: 'prints the flash file, with its secret, instead of its path' },
      again: { about: 'gives a unit that was made here a new secret and new files' },
      ...connection,
    },
    examples: ['slipway provision one --serial SN-0001 --format esp-nvs-csv --out line --field name="Pump 7"'],
    run: (given) => forTheLine(async () => (await import('../line/provision-one.ts')).provisionOne(given)),
  }),
  command({
    ...common,
    words: 'verify',
    summary: 'waits until a unit has connected and published',
    about: `Give either --serial or --device. ${onServer}`,
    flags: {
      serial: { value: 'SERIAL', about: 'serial number of the unit' },
      device: { value: 'ID', about: 'id of the device' },
      timeout: { value: 'SECONDS', about: 'how long it waits', whole: { min: 0, max: 60, default: 30 } },
      ...connection,
    },
    examples: ['slipway verify --serial SN-0001 --timeout 30'],
    run: (given) => forTheLine(async () => (await import('../line/verify.ts')).verify(given)),
  }),
  command({
    ...common,
    words: 'firmware publish',
    summary: 'uploads files into a package and publishes it',
    about: 'See docs/firmware.md.',
    operands: [{ name: 'FILE', about: 'files of the package', many: true }],
    flags: {
      template: { value: 'ID', about: 'device template of the package', required: true },
      firmwareVersion: { value: 'VERSION', about: 'version that devices report after the update', required: true },
      name: { value: 'NAME', about: 'name of the package', otherwise: 'the name of the first file' },
      signature: { value: 'FILE', about: 'signature that devices check', completes: 'files' },
      ...connection,
    },
    examples: ['slipway firmware publish app.bin --template ID --firmware-version 2.1.0'],
    run: (given, files) => forTheLine(async () => (await import('../firmware.ts')).firmwarePublish(given, files)),
  }),
  command({
    ...common,
    words: 'firmware roll-out',
    summary: 'rolls a package out to devices',
    about:
      'Give one kind of target: --where, --device, --organization or --fleet. With --watch it ends with the rollout, ' +
      'with 0 when every device has succeeded, or when it pauses. See docs/firmware.md.',
    flags: {
      package: { value: 'ID', about: 'the package', required: true },
      where: { value: 'FIELD=VALUE', about: 'devices with this value', list: true },
      device: { value: 'ID', about: 'this device', list: true },
      organization: { value: 'ID', about: 'devices of this organization and those below' },
      fleet: { value: 'NAME', about: 'devices of this fleet, by its name or id' },
      stages: { value: 'PERCENTS', about: 'percentages that rise to 100, such as 1,10,100', otherwise: '100' },
      pause: { value: 'SECONDS', about: 'pause after a stage', whole: { min: 0, max: 31_536_000, default: 3600 } },
      deadline: {
        value: 'SECONDS',
        about: 'time that a device has',
        whole: { min: 1, max: 31_536_000, default: 604_800 },
      },
      maxFailures: {
        value: 'PERCENT',
        about: 'the rollout pauses when more devices fail',
        whole: { min: 0, max: 100, default: 20 },
      },
      continuous: { about: 'goes on with devices that begin to match the fleet later, until it is cancelled' },
      watch: { about: 'shows the rollout until it has ended or paused' },
      ...connection,
    },
    examples: ["slipway firmware roll-out --package ID --where 'firmwareVersion=1.*' --stages 1,10,100 --watch"],
    run: (given) => forTheLine(async () => (await import('../firmware.ts')).firmwareRollOut(given)),
  }),
  command({
    ...common,
    words: 'firmware status',
    summary: 'shows a rollout, or the newest 20',
    about: 'With --json it prints one line for each. See docs/firmware.md.',
    operands: [{ name: 'ROLLOUT', about: 'id of the rollout', optional: true }],
    flags: {
      rollout: { value: 'ID', about: 'the rollout', otherwise: 'the newest 20' },
      watch: { about: 'shows the rollout until it has ended or paused' },
      ...connection,
    },
    examples: ['slipway firmware status', 'slipway firmware status ID --watch'],
    run: (given, operands) => forTheLine(async () => (await import('../firmware.ts')).firmwareStatus(given, operands)),
  }),
];
