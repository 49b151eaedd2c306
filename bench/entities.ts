/** Single requests over HTTP next to bare Fastify: a device by id, the shortest answer, and a device made, on disk before the answer. */
import { logIn } from './api.ts';
import { equip } from './equip.ts';
import { at, described, median, type Row } from './figures.ts';
import { getBytes, postBytes, rateOf } from './http-load.ts';
import type { Serving } from './processes.ts';
import type { Bench } from './sizes.ts';

const readers = 8;
/** So many devices are read in turn, that not one row alone is warm. */
const idsRead = 2000;
const ratioFigure = 0.4;
/** Microseconds of CPU time. */
const readFigure = 90;
const liveFigure = 55;
const writers = 32;
const createFigure = 3000;
const createCpuFigure = 400;

export async function measureReads({ size, directory, serve, serveBareFastify }: Bench): Promise<Row[]> {
  const seeded = await directory(size.registry);
  const devices = await equip(seeded, Math.min(idsRead, size.registry));
  const ids = devices.map(({ id }) => id);
  const service = await serve(seeded);
  const { token, call } = await logIn(service, devices[0]?.accountId ?? '');
  const url = new URL(service.url);
  const bare = await serveBareFastify(JSON.stringify(await call('GET', `/devices/${ids[0]}`)));
  const requests = ids.map((id) => getBytes(`${url.pathname}/devices/${id}`, token));
  const bareRequests = ids.map((id) => getBytes(`/devices/${id}`, token));
  const ours: Measured[] = [];
  const theirs: Measured[] = [];
  const equal: Measured[] = [];
  const live: Measured[] = [];
  // In turns, so that a busy moment of the machine is nobody's alone.
  for (let round = 0; round < size.rounds; round += 1) {
    ours.push(await measure('Slipway', service, Number(url.port), requests, size.roundTime));
    const rate = ours[round]?.perSecond;
    theirs.push(await measure('bare Fastify', bare, bare.httpPort, bareRequests, size.roundTime));
    equal.push(await measure('at our rate', bare, bare.httpPort, bareRequests, size.roundTime, rate));
    live.push(await measure('health/live', service, Number(url.port), [getBytes('/health/live')], size.roundTime));
  }
  await service.stop();
  await bare.stop();
  const peer = (what: keyof Measured) => ({ name: 'bare Fastify', value: middle(theirs, what) });
  const peerAtOurRate = { name: 'bare Fastify at our rate', value: middle(equal, 'cpu') };
  return [
    {
      what: 'GET a device by id, JWT checked',
      devices: size.registry,
      ours: middle(ours, 'perSecond'),
      unit: '/s',
      peer: peer('perSecond'),
      figure: { ofPeer: ratioFigure },
    },
    {
      what: 'CPU time of the server for a GET',
      ours: middle(ours, 'cpu'),
      unit: 'µs',
      peer: peerAtOurRate,
      figure: { below: readFigure },
    },
    {
      what: 'The same, next to bare Fastify at its own rate',
      ours: middle(ours, 'cpu'),
      unit: 'µs',
      peer: peer('cpu'),
    },
    {
      what: 'CPU time of the server for GET /health/live',
      ours: middle(live, 'cpu'),
      unit: 'µs',
      peer: peer('cpu'),
      figure: { below: liveFigure },
    },
  ];
}

function middle(all: readonly Measured[], what: keyof Measured): number {
  return median(all.map((one) => one[what]));
}

interface Measured {
  perSecond: number;
  /** Microseconds of the server a request. */
  cpu: number;
}

async function measure(
  name: string,
  serving: Serving,
  port: number,
  requests: readonly Buffer[],
  duration: number,
  atMost?: number,
): Promise<Measured> {
  let asked = 0;
  const next = () => {
    asked += 1;
    return requests[asked % requests.length] as Buffer;
  };
  const before = serving.cpu();
  const { perSecond, times } = await rateOf(port, readers, duration, next, atMost);
  const cpu = ((serving.cpu() - before) / asked) * 1e6;
  console.log(
    `  ${name.padEnd(14)} ${Math.round(perSecond)}/s, ${cpu.toFixed(0)} µs of CPU time each  ${described(times)}`,
  );
  return { perSecond, cpu };
}

export async function measureCreates({ size, directory, serve }: Bench): Promise<Row[]> {
  const seeded = await directory(size.registry);
  const [device] = await equip(seeded, 1);
  const accountId = device?.accountId ?? '';
  const service = await serve(seeded);
  const { token } = await logIn(service, accountId);
  const url = new URL(service.url);
  let made = 0;
  const next = () => {
    made += 1;
    return postBytes(`${url.pathname}/devices`, token, { accountId, serialNumber: `MADE-${made}` });
  };
  const rounds: Measured[] = [];
  const slowest: number[] = [];
  for (let round = 0; round < size.rounds; round += 1) {
    const [before, from] = [service.cpu(), made];
    const { perSecond, times } = await rateOf(Number(url.port), writers, size.roundTime, next);
    const cpu = ((service.cpu() - before) / (made - from)) * 1e6;
    const rate = `${Math.round(perSecond)}/s over ${writers} connections, ${cpu.toFixed(0)} µs of CPU time each`;
    console.log(`  ${rate}  ${described(times)}`);
    rounds.push({ perSecond, cpu });
    slowest.push(at(times, 0.99));
  }
  await service.stop();
  return [
    {
      what: 'POST /devices, on disk before the answer',
      devices: size.registry,
      ours: middle(rounds, 'perSecond'),
      unit: '/s',
      figure: { atLeast: createFigure },
    },
    { what: 'POST /devices meanwhile, p99', ours: median(slowest), unit: 'ms' },
    {
      what: 'CPU time of the server for a POST',
      ours: middle(rounds, 'cpu'),
      unit: 'µs',
      figure: { below: createCpuFigure },
    },
  ];
}
