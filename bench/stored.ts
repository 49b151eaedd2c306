/** QoS 1 on a channel whose messages are on disk before they are acknowledged, next to peers. Of those NATS alone stores them. */
import { type Equipped, equip } from './equip.ts';
import { at, described, median, type Row } from './figures.ts';
import { flood } from './flood.ts';
import { type Level, type Link, openLink, publishBytes } from './link.ts';
import type { Serving } from './processes.ts';
import type { Bench } from './sizes.ts';

const crowds = [1, 10, 50];
/** The figure is one of many publishers: a single one waits for each commit with its own window. */
const judgedCrowd = 50;
/** Messages of one publisher on their way at once. */
const window = 200;
/** Milliseconds of warming up. */
const warmUp = 1000;
/** Of what Mosquitto acknowledges, microseconds of CPU time, and milliseconds from publish to PUBACK (p99). */
const ratioFigure = 1;
const cpuFigure = 15;
const acknowledgedFigure = 10;
/** Messages a second of all publishers together, for the time to an acknowledgement. */
const pace = 5000;
/** Milliseconds between two handfuls of them. */
const beat = 10;

export async function measureStored(bench: Bench): Promise<Row[]> {
  const { size, directory, serve, serveBareAedes, serveMosquitto, serveNats } = bench;
  const seeded = await directory(1000);
  const devices = await equip(seeded, Math.max(...crowds));
  const ours = { name: 'Slipway, stored', serving: await serve(seeded, { SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0' }) };
  const mosquitto = await serveMosquitto(devices);
  const nats = await serveNats();
  const peers = [
    { name: 'bare Aedes', serving: await serveBareAedes() },
    ...(mosquitto ? [{ name: 'Mosquitto', serving: mosquitto }] : []),
    ...(nats ? [{ name: 'NATS JetStream', serving: nats }] : []),
  ];
  const running = [ours, ...peers];
  const rows: Row[] = [];
  for (const crowd of crowds) {
    console.log(`\n${crowd} publishers, QoS 1, as fast as they can (${window} on their way at once)\n`);
    const measuredOf = new Map<string, Array<{ perSecond: number; cpu: number }>>();
    // In turns, so that a busy moment of the machine is nobody's alone.
    for (let round = 0; round < size.rounds; round += 1)
      for (const { name, serving } of running) {
        const { perSecond, cpu } = await rateOf(serving, devices.slice(0, crowd), size.roundTime);
        measuredOf.set(name, [...(measuredOf.get(name) ?? []), { perSecond, cpu }]);
        const rate = Math.round(perSecond).toString().padStart(7);
        console.log(`  ${name.padEnd(16)} ${rate} msg/s, ${cpu.toFixed(1)} µs of CPU time each`);
      }
    const ourRate = median((measuredOf.get(ours.name) ?? []).map(({ perSecond }) => perSecond));
    const atOurRate = new Map<string, number>();
    for (const { name, serving } of peers) {
      const { perSecond, cpu } = await rateOf(serving, devices.slice(0, crowd), size.roundTime, ourRate);
      atOurRate.set(name, cpu);
      console.log(`  ${name} at our rate: ${Math.round(perSecond)} msg/s, ${cpu.toFixed(1)} µs of CPU time each`);
    }
    const middle = (name: string, what: 'perSecond' | 'cpu') => {
      const rounds = measuredOf.get(name);
      return rounds && median(rounds.map((round) => round[what]));
    };
    const [theirs, bare] = [middle('Mosquitto', 'perSecond'), middle('bare Aedes', 'perSecond') ?? Number.NaN];
    const what = `QoS 1, stored before it is acknowledged, ${crowd} publisher${crowd === 1 ? '' : 's'}`;
    const measured = { what, ours: middle(ours.name, 'perSecond') ?? Number.NaN, unit: 'msg/s' };
    rows.push({
      ...measured,
      ...(theirs !== undefined && { peer: { name: 'Mosquitto', value: theirs } }),
      ...(crowd === judgedCrowd && { figure: { ofPeer: ratioFigure } }),
    });
    rows.push({ ...measured, peer: { name: 'bare Aedes', value: bare } });
    const storing = middle('NATS JetStream', 'perSecond');
    if (storing !== undefined) rows.push({ ...measured, peer: { name: 'NATS JetStream', value: storing } });
    const cpu = {
      what: `CPU time of such a message, ${crowd} publisher${crowd === 1 ? '' : 's'}`,
      ours: middle(ours.name, 'cpu') ?? Number.NaN,
      unit: 'µs',
    };
    for (const [name, value] of atOurRate)
      rows.push({
        ...cpu,
        peer: { name: `${name} at our rate`, value },
        ...(crowd === judgedCrowd && name === 'Mosquitto' && { figure: { below: cpuFigure } }),
      });
  }
  console.log(`\n${devices.length} publishers, ${pace} msg/s together: from publish to PUBACK\n`);
  for (const { name, serving } of running) {
    const times = await paced(serving, devices, size.roundTime);
    console.log(`  ${name.padEnd(16)} ${described(times)}`);
    if (serving === ours.serving)
      rows.push({
        what: 'Publish → PUBACK at 5,000 msg/s, p99',
        ours: at(times, 0.99),
        unit: 'ms',
        figure: { below: acknowledgedFigure },
      });
  }
  for (const { serving } of running) await serving.stop();
  return rows;
}

/** Acknowledgements a second, at most `atMost`, and microseconds of the server for each. */
export async function rateOf(
  { mqttPort: port, cpu }: Serving,
  devices: Equipped[],
  duration: number,
  atMost = Number.POSITIVE_INFINITY,
  level: Level = 4,
): Promise<{ perSecond: number; cpu: number }> {
  const login = ({ id, secret }: Equipped) => ({ username: id, password: secret, clientId: id, level });
  const links = await Promise.all(devices.map((device) => openLink({ port }, login(device))));
  const floods = devices.flatMap((device, n) =>
    links[n] ? [flood(links[n], device.topic('temperature'), window, undefined, atMost / devices.length)] : [],
  );
  const acknowledged = () => floods.reduce((sum, { count }) => sum + count(), 0);
  await passed(warmUp);
  const [before, cpuBefore, from] = [acknowledged(), cpu(), performance.now()];
  await passed(duration);
  const count = acknowledged() - before;
  const perSecond = (count / (performance.now() - from)) * 1000;
  const each = ((cpu() - cpuBefore) / count) * 1e6;
  for (const { socket } of links) socket.destroy();
  return { perSecond, cpu: each };
}

/** Milliseconds from each publish to its PUBACK, at so many messages a second of all devices together. */
export async function paced(
  { mqttPort: port }: Pick<Serving, 'mqttPort'>,
  devices: Equipped[],
  duration: number,
  rate = pace,
): Promise<number[]> {
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
    while (n < (elapsed / 1000) * rate) publish();
    await passed(beat);
  }
  while (sent.size > 0) await passed(beat);
  for (const { socket } of links) socket.destroy();
  return times.slice(warm);
}

function connect(port: number, { id, secret }: Equipped, acknowledged: (messageId: number) => void): Promise<Link> {
  return openLink({ port }, { username: id, password: secret, clientId: id }, ({ cmd, messageId = 0 }) => {
    if (cmd === 'puback') acknowledged(messageId);
  });
}

function passed(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
