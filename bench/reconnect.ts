/** A fleet connects: for the first time next to bare Aedes, and with stored sessions after a restart, next to others who ask. */
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn } from './api.ts';
import { startAsking } from './asker.ts';
import { type Equipped, equip } from './equip.ts';
import { at, described, median, type Row } from './figures.ts';
import type { Serving } from './processes.ts';
import type { Bench } from './sizes.ts';
import { connectAll, type Stormed, subscribe } from './storm.ts';

const ratioFigure = 0.9;
/** Microseconds of CPU time of a CONNECT. */
const cpuFigure = 650;
/** Seconds until all are back, and milliseconds that a request may take meanwhile (p99). */
const secondsFigure = 4;
const restFigure = 100;

export async function measureReconnect({ size, directory, serve, serveBareAedes }: Bench): Promise<Row[]> {
  const seeded = await directory(size.fleet);
  const devices = await equip(seeded, size.fleet);
  const ours: Storm[] = [];
  const theirs: Storm[] = [];
  const equal: Storm[] = [];
  // In turns, so that a busy moment of the machine is nobody's alone; a process of its own each, so that nothing is known.
  for (let round = 0; round < size.rounds; round += 1) {
    ours.push(await storm('Slipway', await serve(seeded), devices));
    theirs.push(await storm('bare Aedes', await serveBareAedes(), devices));
    equal.push(await storm('at our rate', await serveBareAedes(), devices, ours[round]?.perSecond));
  }
  const middle = (all: Storm[], what: keyof Storm) => median(all.map((one) => one[what]));
  const peer = (what: keyof Storm) => ({ name: 'bare Aedes', value: middle(theirs, what) });
  return [
    {
      what: 'CONNECTs, cold, authenticated',
      ours: middle(ours, 'perSecond'),
      unit: '/s',
      peer: peer('perSecond'),
      figure: { ofPeer: ratioFigure },
    },
    {
      what: 'CPU time of the server for a CONNECT',
      ours: middle(ours, 'cpu'),
      unit: 'µs',
      peer: { name: 'bare Aedes at our rate', value: middle(equal, 'cpu') },
      figure: { below: cpuFigure },
    },
    { what: 'The same, next to bare Aedes at its own rate', ours: middle(ours, 'cpu'), unit: 'µs', peer: peer('cpu') },
    ...(await comeBack(seeded, devices, serve, size.rest)),
  ];
}

interface Storm {
  perSecond: number;
  /** Microseconds of the server for each. */
  cpu: number;
}

/** CONNECTs with clean sessions. */
async function storm(name: string, serving: Serving, devices: readonly Equipped[], atMost?: number): Promise<Storm> {
  const stormed = await connectAll(serving, devices, { clean: true }, atMost);
  console.log(`  ${name.padEnd(12)} ${said(stormed)}`);
  for (const { socket } of stormed.links.values()) socket.destroy();
  await serving.stop();
  return { perSecond: devices.length / stormed.seconds, cpu: (stormed.cpu / devices.length) * 1e6 };
}

/** With a stored session and a subscription each, after a restart. */
async function comeBack(
  directory: string,
  devices: readonly Equipped[],
  serve: Bench['serve'],
  rest: number,
): Promise<Row[]> {
  const [sample] = devices;
  const before = await serve(directory);
  const { links } = await connectAll(before, devices);
  await Promise.all([...links].map(([device, link]) => subscribe(link, device.topic('chat'))));
  await before.stop();
  await Promise.all([...links.values()].map(({ closed }) => closed));

  const from = performance.now();
  const service = await serve(directory);
  console.log(`  restarted in ${Math.round(performance.now() - from)} ms; with its sessions ${service.rss()} MB`);
  const { token } = await logIn(service, sample?.accountId ?? '');
  const asking = startAsking(`${service.url}/devices/${sample?.id}`, token);
  const back = await connectAll(service, devices);
  const times = await asking.stop();
  const present = [...back.links.values()].filter(({ sessionPresent }) => sessionPresent).length;
  await sleep(rest);
  console.log(`  back         ${said(back)}; ${present} found their session; memory ${service.rss()} MB`);
  console.log(`  GET a device meanwhile  ${described(times)}`);
  for (const { socket } of back.links.values()) socket.destroy();
  await service.stop();
  if (present < devices.length) throw new Error(`only ${present} found their session`);
  return [
    {
      what: 'All back after a restart',
      devices: devices.length,
      ours: back.seconds,
      unit: 's',
      figure: { below: secondsFigure },
    },
    { what: 'GET a device meanwhile, p99', ours: at(times, 0.99), unit: 'ms', figure: { below: restFigure } },
  ];
}

function said({ links, seconds, cpu }: Stormed): string {
  return `${seconds.toFixed(1)} s, ${Math.round(links.size / seconds)} CONNECTs/s, ${cpu.toFixed(1)} s of CPU time`;
}
