/** What messages take of memory besides their own bytes. */

import { Duplex } from 'node:stream';
import t from 'tap';
import type { BrokerClient } from '../../broker/client-types.ts';
import { newCounters } from '../../broker/connections/counters.ts';
import { MessageNumbers } from '../../broker/message-numbers.ts';
import type { Outgoing } from '../../broker/message-types.ts';
import { Deliveries, type DeliveryParts } from '../../broker/packets/deliveries.ts';
import { Level4 } from '../../broker/packets/level-4.ts';
import { Turns } from '../../broker/packets/turns.ts';
import { PacketIds } from '../../broker/sessions/packet-ids.ts';
import { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import { slices } from '../../src/core/scheduler/time-slice.ts';

t.test('a payload that waits for a socket does not keep all that was read with it', async (t) => {
  const written: Buffer[] = [];
  const write = (chunk: Buffer, _: unknown, done: () => void) => {
    written.push(chunk);
    done();
  };
  const receivers = Array.from({ length: 2 }, () => {
    const client = {
      conn: new Duplex({ read() {}, write }),
      ...{
        closed: false,
        clean: true,
        receiveMaximum: Number.POSITIVE_INFINITY,
        codec: new Level4(),
        whenWritable: (done: () => void) => done(),
      },
    };
    return Object.assign(client, {
      live: { client, leaving: new Turns(), ids: new PacketIds(), lastHeard: 0 },
    }) as unknown as BrokerClient;
  });
  const deliveries = new Deliveries({
    forward: (_: BrokerClient, packet: Outgoing) => packet,
    persistence: { queues: { noteSent: () => undefined } },
    messageNumbers: new MessageNumbers(),
    counters: newCounters(),
    scheduler: new Scheduler({ slice: slices.packets }),
  } as unknown as DeliveryParts);
  const readTogether = Buffer.alloc(131_072, 'x');
  const payload = readTogether.subarray(1000, 9000);
  for (const qos of [0, 1] as const)
    for (const client of receivers) {
      const packet = { cmd: 'publish', topic: 'a', payload, qos, retain: false, brokerCounter: 0 };
      deliveries.deliver(client, packet as unknown as Outgoing, () => {});
    }
  await new Promise(setImmediate);
  const payloads = written.filter(({ length }) => length === payload.length);
  t.equal(payloads.length, 4);
  t.ok(payloads.every((bytes) => bytes.equals(payload) && bytes.buffer.byteLength === payload.length));
  t.equal(new Set(payloads.map(({ buffer }) => buffer)).size, 1, 'all who get it share one copy');
});
