/** What MQTT 5 costs next to MQTT 3.1.1, in turns on the same machine: a stored message, a CONNECT, a connection. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Equipped, equip } from './equip.ts';
import { median, type Row } from './figures.ts';
import type { Level } from './link.ts';
import type { Bench } from './sizes.ts';
import { rateOf } from './stored.ts';
import { connectAll } from './storm.ts';

const names = { 5: 'MQTT 5', 4: 'MQTT 3.1.1' } as const satisfies Record<Level, string>;
const levels = [5, 4] as const;
const publishers = 50;
/** Of the CPU time at level 4, and kilobytes. */
const cpuFigure = 1.1;
const memoryFigure = 1;
/** CPU time is compared at one pace, this share of what level 4 can do: it depends on the rate. */
const paceShare = 0.5;
/** How many more rounds CPU time is compared in: a busy machine changes it from one round to the next. */
const cpuRounds = 3;
/** Of the usual time in which memory comes to rest: it is compared, and its own size says nothing. */
const restShare = 0.25;

type Measured<Name extends string> = Record<Level, Array<Record<Name, number>>>;

export async function measureLevels(bench: Bench): Promise<Row[]> {
  const { size, directory, only } = bench;
  const seeded = await directory(size.fleet);
  const devices = await equip(seeded, size.fleet);
  const isAsked = (name: string) => only.length === 0 || only.includes(name);
  return [
    ...(isAsked('messages') ? await storedMessages(bench, seeded, devices) : []),
    ...(isAsked('connections') ? await connections(bench, seeded, devices) : []),
  ];
}

async function storedMessages({ size, serve }: Bench, seeded: string, devices: Equipped[]): Promise<Row[]> {
  const service = await serve(seeded, { SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0' });
  const measure = async (rounds: number, pace?: number) => {
    const measured: Measured<'perSecond' | 'cpu'> = { 5: [], 4: [] };
    for (let round = 0; round < rounds; round += 1)
      for (const level of levels) {
        const rate = await rateOf(service, devices.slice(0, publishers), size.roundTime, pace, level);
        measured[level].push(rate);
        const said = `${Math.round(rate.perSecond)} msg/s, ${rate.cpu.toFixed(1)} µs of CPU time each`;
        console.log(`  ${names[level].padEnd(10)} ${said}`);
      }
    return measured;
  };
  console.log(`\n${publishers} publishers, QoS 1, stored, as fast as they can\n`);
  const free = await measure(size.rounds);
  console.log('\nthe same at one pace\n');
  const paced = await measure(cpuRounds * size.rounds, paceShare * middle(free, 4, 'perSecond'));
  await service.stop();
  return [
    compared(`QoS 1, stored before it is acknowledged, ${publishers} publishers`, free, 'perSecond', 'msg/s'),
    { ...comparedByRound('CPU time of such a message', paced, 'cpu', 'µs'), figure: { mostOfPeer: cpuFigure } },
  ];
}

/** A service of its own each time, so that nothing is known. */
async function connections({ size, serve }: Bench, seeded: string, devices: Equipped[]): Promise<Row[]> {
  const measured: Measured<'cpu' | 'memory'> = { 5: [], 4: [] };
  console.log(`\n${devices.length} connections, without stored sessions\n`);
  for (let round = 0; round < size.rounds; round += 1)
    for (const level of levels) {
      const service = await serve(seeded);
      const { links, cpu } = await connectAll(service, devices, { clean: true, level });
      await sleep(restShare * size.rest);
      const [each, memory] = [(cpu / devices.length) * 1e6, service.rss()];
      measured[level].push({ cpu: each, memory });
      console.log(`  ${names[level].padEnd(10)} ${each.toFixed(0)} µs of CPU time for a CONNECT; then ${memory} MB`);
      for (const { socket } of links.values()) socket.destroy();
      await service.stop();
    }
  const more = middle(measured, 5, 'memory') - middle(measured, 4, 'memory');
  return [
    comparedByRound('CPU time of the server for a CONNECT', measured, 'cpu', 'µs'),
    { ...compared('Memory of the service with their connections', measured, 'memory', 'MB'), devices: devices.length },
    {
      what: 'Memory that a connection of MQTT 5 takes more',
      ours: (more * 1024) / devices.length,
      unit: 'KB',
      figure: { below: memoryFigure },
    },
  ];
}

function middle<Name extends string>(measured: Measured<Name>, level: Level, name: Name): number {
  return median(measured[level].map((one) => one[name]));
}

function compared<Name extends string>(what: string, measured: Measured<Name>, name: Name, unit: string): Row {
  const [ours, value] = [middle(measured, 5, name), middle(measured, 4, name)];
  return { what, ours, unit, peer: { name: names[4], value } };
}

/** The round whose ratio is the middle one: both were measured in the same moments. */
function comparedByRound<Name extends string>(what: string, measured: Measured<Name>, name: Name, unit: string): Row {
  const rounds = measured[5].map((one, round) => ({
    ours: one[name],
    value: measured[4][round]?.[name] ?? Number.NaN,
  }));
  const ratio = median(rounds.map(({ ours, value }) => ours / value));
  const { ours, value } = rounds.find((one) => one.ours / one.value === ratio) ?? {
    ours: Number.NaN,
    value: Number.NaN,
  };
  return { what, ours, unit, peer: { name: names[4], value } };
}
