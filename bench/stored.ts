/** QoS 1 on a channel whose messages are on disk before they are acknowledged, beside peers that store nothing. */
import { type Equipped, equip } from './equip.js';
import { described } from './figures.js';
import { type Link, openLink, publishBytes } from './link.js';
import { type Serving, serve, serveBareAedes, serveMosquitto } from './processes.js';

const crowds = [1, 10, 50];
/** Messages of one publisher on their way at once. */
const window = 200;
/** Milliseconds of warming up, and of measuring. */
const warmUp = 1000;
const duration = 5000;
/** Messages a second of all publishers together, for the time to an acknowledgement. */
const pace = 5000;
/** Milliseconds between two handfuls of them. */
const beat = 10;

export async function measureStored(directory: string): Promise<void> {
  const devices = await equip(directory, Math.max(...crowds));
  const peers: Array<[string, Serving | undefined]> = [
    ['Slipway, stored', await serve(directory, { SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0' })],
    ['bare Aedes', await serveBareAedes()],
    ['Mosquitto', await serveMosquitto()],
  ];
  const running = peers.flatMap(([name, serving]) => (serving ? [{ name, serving }] : []));
  for (const crowd of crowds) {
    console.log(`\n${crowd} publishers, QoS 1, as fast as they can (${window} on their way at once)\n`);
    let first: number | undefined;
    for (const { name, serving } of running) {
      const perSecond = await flood(serving, devices.slice(0, crowd));
      first ??= perSecond;
      const ratio = first === perSecond ? '' : `  ratio ${(first / perSecond).toFixed(2)}`;
      console.log(`  ${name.padEnd(16)} ${Math.round(perSecond).toString().padStart(7)} msg/s${ratio}`);
    }
  }
  console.log(`\n${devices.length} publishers, ${pace} msg/s together: from publish to PUBACK\n`);
  for (const { name, serving } of running)
    console.log(`  ${name.padEnd(16)} ${described(await paced(serving, devices))}`);
  for (const { serving } of running) await serving.stop();
}

/** Acknowledgements a second. */
async function flood({ mqttPort: port }: Serving, devices: Equipped[]): Promise<number> {
  let acknowledged = 0;
  const links = await Promise.all(
    devices.map((device) => {
      let n = 0;
      const publish = (link: Link) => {
        n += 1;
        link.send(publishBytes(device.topic('temperature'), `,x,${n},`, { qos: 1, messageId: (n % 65_535) + 1 }));
      };
      return connect(port, device, (_, link) => {
        acknowledged += 1;
        publish(link);
      }).then((link) => {
        for (let sent = 0; sent < window; sent += 1) publish(link);
        return link;
      });
    }),
  );
  await passed(warmUp);
  const [before, from] = [acknowledged, performance.now()];
  await passed(duration);
  const perSecond = ((acknowledged - before) / (performance.now() - from)) * 1000;
  for (const { socket } of links) socket.destroy();
  return perSecond;
}

/** Milliseconds from each publish to its PUBACK. */
async function paced({ mqttPort: port }: Serving, devices: Equipped[]): Promise<number[]> {
  const times: number[] = [];
  const sent = new Map<string, number>();
  const links = await Promise.all(
    devices.map((device) =>
      connect(port, device, (messageId) => {
        const key = `${device.id} ${messageId}`;
        times.push(performance.now() - (sent.get(key) ?? Number.NaN));
        sent.delete(key);
      }),
    ),
  );
  let n = 0;
  const publish = () => {
    const at = n % links.length;
    const [link, device] = [links[at], devices[at]];
    n += 1;
    if (!link || !device) return;
    const messageId = (Math.floor(n / links.length) % 65_535) + 1;
    sent.set(`${device.id} ${messageId}`, performance.now());
    link.send(publishBytes(device.topic('temperature'), `,x,${n},`, { qos: 1, messageId }));
  };
  const from = performance.now();
  let warm = 0;
  for (;;) {
    const elapsed = performance.now() - from;
    if (elapsed > warmUp + duration) break;
    if (elapsed < warmUp) warm = times.length;
    while (n < (elapsed / 1000) * pace) publish();
    await passed(beat);
  }
  while (sent.size > 0) await passed(beat);
  for (const { socket } of links) socket.destroy();
  return times.slice(warm);
}

function connect(
  port: number,
  { id, secret }: Equipped,
  acknowledged: (messageId: number, link: Link) => void,
): Promise<Link> {
  return openLink({ port }, { username: id, password: secret, clientId: id }, ({ cmd, messageId = 0 }, link) => {
    if (cmd === 'puback') acknowledged(messageId, link);
  });
}

function passed(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
