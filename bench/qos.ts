/** What one message costs at each QoS, from 10 publishers on a channel that stores nothing: CPU time, and how many a second. */
import { type Equipped, equip } from './equip.ts';
import { median, type Row } from './figures.ts';
import { type Link, openLink, publishBytes } from './link.ts';
import type { Serving } from './processes.ts';
import type { Bench } from './sizes.ts';

const publishers = 10;
/** Messages of one publisher on their way at once. */
const window = 200;
/** Messages of QoS 0 between two PINGREQs, whose answers say that they have been taken. */
const handful = 50;
const payload = 'x'.repeat(32);
const unlimited = {
  SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
  SLIPWAY_MQTT_BYTE_RATE_PER_CLIENT: '0',
  SLIPWAY_MQTT_POINT_RATE_PER_CLIENT: '0',
};

export async function measureQos({ size, directory, serve }: Bench): Promise<Row[]> {
  const seeded = await directory(1000);
  const devices = await equip(seeded, publishers);
  const serving = await serve(seeded, unlimited);
  const rows: Row[] = [];
  for (const qos of [0, 1, 2] as const) {
    const rates: number[] = [];
    const costs: number[] = [];
    for (let round = 0; round < size.rounds; round += 1) {
      const { perSecond, cpu } = await rateOf(serving, devices, qos, size.duration);
      rates.push(perSecond);
      costs.push(cpu);
      console.log(`  QoS ${qos}: ${Math.round(perSecond)} msg/s, ${cpu.toFixed(2)} µs of CPU time each`);
    }
    rows.push({ what: `QoS ${qos}, ${publishers} publishers`, ours: median(rates), unit: 'msg/s' });
    rows.push({ what: `QoS ${qos}, CPU time of a message`, ours: median(costs), unit: 'µs' });
  }
  await serving.stop();
  return rows;
}

async function rateOf(serving: Serving, devices: Equipped[], qos: 0 | 1 | 2, duration: number) {
  const links = await Promise.all(
    devices.map(({ id, secret }) =>
      openLink({ port: serving.mqttPort }, { username: id, password: secret, clientId: id }),
    ),
  );
  const counts = devices.map((device, n) => flow(links[n] as Link, device.topic('chat'), qos));
  const total = () => counts.reduce((sum, count) => sum + count(), 0);
  await passed(duration / 5);
  const [before, cpu, from] = [total(), serving.cpu(), performance.now()];
  await passed(duration);
  const messages = total() - before;
  const used = serving.cpu() - cpu;
  const perSecond = (messages / (performance.now() - from)) * 1000;
  for (const { socket } of links) socket.destroy();
  return { perSecond, cpu: (used / messages) * 1e6 };
}

/** Keeps `window` messages in flight; returns how many have been taken. */
function flow({ socket }: Link, topic: string, qos: 0 | 1 | 2): () => number {
  let [sent, taken] = [0, 0];
  let rest: Buffer = Buffer.alloc(0);
  const send = (count: number) => {
    const packets: Buffer[] = [];
    for (let n = 0; n < count; n += 1) {
      sent += 1;
      packets.push(publishBytes(topic, payload, qos > 0 ? { qos, messageId: (sent % 65_535) + 1 } : {}));
      if (qos === 0 && sent % handful === 0) packets.push(Buffer.from([0xc0, 0]));
    }
    socket.write(Buffer.concat(packets));
  };
  socket.removeAllListeners('data');
  socket.on('data', (chunk: Buffer) => {
    const bytes = Buffer.concat([rest, chunk]);
    const released: Buffer[] = [];
    const before = taken;
    let at = 0;
    for (; at + 2 <= bytes.length && at + 2 + (bytes[at + 1] as number) <= bytes.length; ) {
      const type = (bytes[at] as number) >> 4;
      if (type === 13) taken += handful;
      else if (type === 4 || type === 7) taken += 1;
      else if (type === 5) released.push(Buffer.from([0x62, 2, bytes[at + 2] as number, bytes[at + 3] as number]));
      at += 2 + (bytes[at + 1] as number);
    }
    rest = bytes.subarray(at);
    if (released.length > 0) socket.write(Buffer.concat(released));
    if (taken > before) send(taken - before);
  });
  send(window);
  return () => taken;
}

function passed(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
