/** Commands for one device. */
import { command } from '../command.ts';
import { forTheLine } from '../guards.ts';
import { common, connection } from './factory.ts';

export const deviceCommands = [
  command({
    ...common,
    group: 'Devices',
    words: 'device send',
    summary: 'publishes a message on a channel of a device',
    about: 'Prints the topic. Clients of MQTT 5 and streams get the properties with the message. See docs/messages.md.',
    operands: [
      { name: 'DEVICE', about: 'its id or its serial number' },
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
];
