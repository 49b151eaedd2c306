/** Commands for people who look after devices. */
import { command } from '../command.ts';
import { forTheLine } from '../guards.ts';
import { common, connection } from './factory.ts';

const server = 'Calls a server: log in with slipway login first, or give a token.';
const device = { name: 'DEVICE', about: 'its id or its serial number' } as const;
const organization = { value: 'NAME', about: 'name or id of the organization' } as const;
const fleet = { value: 'NAME', about: 'name or id of the fleet' } as const;
const devices = {
  ...common,
  group: 'Devices',
  exitCodes: { 0: 'done', 2: 'wrong usage or input', 3: 'server or network: run it again', 4: 'refused' },
} as const;
const following = {
  channel: { value: 'CHANNEL', about: 'this channel alone', otherwise: 'all' },
  count: {
    value: 'N',
    about: 'ends after so many messages; 0 is never',
    whole: { min: 0, max: 1_000_000, default: 0 },
  },
  ...connection,
} as const;

export const deviceCommands = [
  command({
    ...devices,
    words: 'device list',
    summary: 'lists devices',
    about: server,
    flags: {
      product: { value: 'NAME', about: 'name or id of the device template' },
      organization,
      fleet,
      where: { value: 'FIELD=VALUE', about: 'devices with this value', list: true },
      limit: { value: 'N', about: 'devices at most', whole: { min: 1, max: 1000, default: 50 } },
      ...connection,
    },
    examples: ['slipway device list', 'slipway device list --where connected=true --json'],
    run: (given) => forTheLine(async () => (await import('../devices.ts')).deviceList(given)),
  }),
  command({
    ...devices,
    words: 'fleet list',
    summary: 'lists fleets, with how many devices they hold now',
    about: server,
    flags: { ...connection },
    examples: ['slipway fleet list'],
    run: (given) => forTheLine(async () => (await import('../fleets.ts')).fleetList(given)),
  }),
  command({
    ...devices,
    words: 'fleet new',
    summary: 'keeps a filter of devices under a name',
    about: `The filter is an expression: see docs/filters.md. ${server}`,
    operands: [{ name: 'NAME', about: 'its name' }],
    flags: {
      filter: { value: 'FILTER', about: 'the devices that it holds', required: true },
      organization,
      ...connection,
    },
    examples: ["slipway fleet new 'To update' --filter 'firmwareVersion lt \"2.4\"'"],
    run: (given, operands) => forTheLine(async () => (await import('../fleets.ts')).fleetNew(given, operands)),
  }),
  command({
    ...devices,
    words: 'device show',
    summary: 'shows a device and its latest values',
    about: server,
    operands: [device],
    flags: { ...connection },
    examples: ['slipway device show SN-0001'],
    run: (given, operands) => forTheLine(async () => (await import('../devices.ts')).deviceShow(given, operands)),
  }),
  command({
    ...devices,
    words: 'device new',
    summary: 'creates a device and prints its secret, which is shown once',
    about: server,
    operands: [{ name: 'SERIAL', about: 'its serial number' }],
    flags: {
      product: { value: 'NAME', about: 'name or id of the device template', required: true },
      organization,
      field: { value: 'NAME=VALUE', about: 'a field of the device', list: true },
      ...connection,
    },
    examples: ["slipway device new SN-0001 --product 'Room sensor'"],
    run: (given, operands) => forTheLine(async () => (await import('../devices.ts')).deviceNew(given, operands)),
  }),
  command({
    ...devices,
    words: 'device tail',
    summary: 'prints the messages of a device as they come',
    about: server,
    operands: [device],
    flags: following,
    examples: ['slipway device tail SN-0001 --channel readings'],
    run: (given, operands) => forTheLine(async () => (await import('../tail.ts')).deviceTail(given, operands)),
  }),
  command({
    ...devices,
    words: 'tail',
    summary: 'prints the messages of all devices as they come',
    about: server,
    flags: following,
    examples: ['slipway tail', 'slipway tail --channel readings --json'],
    run: (given) => forTheLine(async () => (await import('../tail.ts')).tail(given)),
  }),
  command({
    ...devices,
    words: 'simulate',
    summary: 'plays a fleet of sensors',
    about: `Makes the product and the devices SIM-0001 to SIM-COUNT, or gives them new secrets if they exist. ${server}`,
    operands: [{ name: 'COUNT', about: 'how many, from 1 to 1000' }],
    flags: {
      product: { value: 'NAME', about: 'name of the device template', otherwise: 'Simulated sensor' },
      every: { value: 'SECONDS', about: 'between two messages of a device', whole: { min: 1, max: 3600, default: 10 } },
      for: { value: 'SECONDS', about: 'how long; 0 is until Ctrl-C', whole: { min: 0, max: 86_400, default: 0 } },
      ...connection,
    },
    examples: ['slipway simulate 20', 'slipway simulate 100 --every 60 --for 3600'],
    run: (given, operands) => forTheLine(async () => (await import('../simulate.ts')).simulate(given, operands)),
  }),
  command({
    ...common,
    group: 'Devices',
    words: 'device send',
    summary: 'publishes a message on a channel of a device',
    about: 'Prints the topic. Clients of MQTT 5 and streams get the properties with the message. See docs/messages.md.',
    operands: [
      device,
      { name: 'CHANNEL', about: 'the channel, such as readings' },
      { name: 'TEXT', about: 'the payload' },
    ],
    flags: {
      qos: { value: 'QOS', about: 'of the deliveries, at most', choices: ['0', '1', '2'], otherwise: '1' },
      retain: { about: 'keeps the message for later subscribers' },
      contentType: { value: 'TYPE', about: 'media type of the payload, such as text/csv' },
      responseTopic: { value: 'TOPIC', about: 'topic of the response; you may subscribe to it' },
      correlationData: { value: 'BASE64', about: 'what the response repeats' },
      userProperty: { value: 'NAME=VALUE', about: 'a user property', list: true },
      messageExpiry: { value: 'SECONDS', about: 'how long the message is delivered', otherwise: 'for ever' },
      ...connection,
    },
    exitCodes: {
      ...common.exitCodes,
      0: 'the message was published',
      1: 'the message was delivered but not stored',
    },
    examples: [
      "slipway device send SN-0001 readings ',temperature,21.5,'",
      'slipway device send SN-0001 requests \'{"read":"temperature"}\' --content-type application/json --message-expiry 60',
    ],
    run: (given, operands) => forTheLine(async () => (await import('../devices.ts')).deviceSend(given, operands)),
  }),
  command({
    ...common,
    group: 'Devices',
    words: 'enroll',
    summary: 'plays a device that gets its credential from an enrollment group',
    about:
      'Over HTTP, or with --mqtt over MQTT. Prints the answer, with the secret; with --out it is written to files. See docs/enrollment.md.',
    flags: {
      group: { value: 'ID', about: 'id of the enrollment group', required: true },
      serial: { value: 'SERIAL', about: 'serial number of the device' },
      secret: {
        value: 'TEXT',
        about: 'the claim secret of the group, or the derived key of a device',
        otherwise: 'SLIPWAY_ENROLL_SECRET',
      },
      groupKey: { value: 'KEY', about: 'the group key: the derived key is made from it and --serial' },
      cert: { value: 'FILE', about: 'PEM file of the manufacturer’s certificate', completes: 'files' },
      key: { value: 'FILE', about: 'PEM file of its key', completes: 'files' },
      csr: { value: 'FILE', about: 'PEM file of a certificate request, for a certificate', completes: 'files' },
      previousSecret: { value: 'TEXT', about: 'the secret of a device that has connected already' },
      firmwareVersion: { value: 'VERSION', about: 'version of the firmware' },
      field: { value: 'NAME=VALUE', about: 'a field of the device', list: true },
      mqtt: { value: 'URL', about: 'asks over MQTT, such as mqtts://host:8883' },
      cbor: { about: 'asks in CBOR; for --mqtt' },
      out: { value: 'DIR', about: 'writes device.json, and device.crt, there', completes: 'directories' },
      url: connection.url,
      ca: connection.ca,
    },
    exitCodes: {
      0: 'the device has its credential',
      1: 'refused, with the reason',
      2: 'wrong usage or input',
      3: 'server or network: run it again',
      4: 'the proof is missing or wrong',
    },
    examples: [
      'slipway enroll --group 0190… --serial SN-0001 --secret "$CLAIM_SECRET"',
      'slipway enroll --group 0190… --serial SN-0001 --group-key "$GROUP_KEY" --csr device.csr --out device',
      'slipway enroll --group 0190… --cert factory.crt --key factory.key --mqtt mqtts://broker.example.com:8883 --ca ca.pem',
    ],
    run: (given) => forTheLine(async () => (await import('../enroll.ts')).enroll(given)),
  }),
];
