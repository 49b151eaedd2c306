/** A fleet that renews its secrets, and certificates that are issued for devices, next to others who ask. */
import type { Api } from './api.ts';
import { startAsking } from './asker.ts';
import type { Equipped } from './equip.ts';
import { at, described, type Row } from './figures.ts';
import { HttpLine, postBytes, rateOf } from './http-load.ts';
import type { ServingService } from './processes.ts';

export interface Load {
  server: ServingService;
  api: Api;
  accountId: string;
  /** Milliseconds. */
  taken: number;
}

/** Seconds for 10,000 renewals; a smaller fleet has its share. */
const fleetFigure = 120;
const fleet = 10_000;
const othersFigure = 100;
const connections = 32;
/** Certificates that a device may have, and one for what it had before. */
const perDevice = 9;

const urlOf = ({ server, accountId }: Load) => `${server.url}/devices?accountId=${accountId}&pageSize=20`;

/** All of them at once, each over HTTP with its secret. */
export async function measureRenewals(load: Load, devices: readonly Equipped[]): Promise<Row[]> {
  const port = Number(new URL(load.server.url).port);
  const asking = startAsking(urlOf(load), load.api.token);
  const [from, cpuBefore] = [performance.now(), load.server.cpu()];
  const left = devices.values();
  const renew = async () => {
    const line = new HttpLine(port);
    for (const { id, secret } of left) {
      const basic = Buffer.from(`${id}:${secret}`).toString('base64');
      const head = `POST /api/v1/enroll/renew HTTP/1.1\r\nhost: bench\r\nauthorization: Basic ${basic}`;
      const answer = await line.ask(`${head}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}`);
      if (answer.toString('latin1', 9, 12) !== '200') throw new Error(answer.toString());
    }
    line.end();
  };
  await Promise.all(Array.from({ length: connections }, renew));
  const seconds = (performance.now() - from) / 1000;
  const cpu = (load.server.cpu() - cpuBefore) / devices.length;
  const asked = await asking.stop();
  const count = devices.length.toLocaleString('en');
  console.log(
    `\n  ${count} renewals in ${seconds.toFixed(1)} s, CPU time of the server ${Math.round(cpu * 1e6)} µs each`,
  );
  console.log(`  GET a page of devices meanwhile  ${described(asked)}\n`);
  const figure = { below: (fleetFigure * devices.length) / fleet };
  return [
    { what: `A fleet renews its secrets, ${count} devices`, ours: seconds, unit: 's', figure },
    { what: 'CPU time of the server for a renewal', ours: cpu * 1e6, unit: 'µs' },
    {
      what: 'GET a page of devices next to renewals, p99',
      ours: at(asked, 0.99),
      unit: 'ms',
      figure: { below: othersFigure },
    },
  ];
}

/** Certificates for devices that are there, with the token of an admin. */
export async function measureIssuing(
  load: Load,
  devices: readonly Equipped[],
  authorityId: string,
  csr: string,
): Promise<Row[]> {
  const { server, api, taken } = load;
  let next = 0;
  const path = `/api/v1/access/certificate-authorities/${authorityId}/issue`;
  const request = () => {
    const deviceId = devices[Math.floor(next / perDevice) % devices.length]?.id;
    next += 1;
    return postBytes(path, api.token, { deviceId, csr });
  };
  const most = (devices.length * perDevice * 1000) / (1.2 * taken);
  const cpuBefore = server.cpu();
  const { perSecond, times } = await rateOf(Number(new URL(server.url).port), connections, taken, request, most);
  const cpu = (server.cpu() - cpuBefore) / next;
  console.log(`\n  certificates issued: ${Math.round(perSecond)} /s, ${described(times)}\n`);
  return [
    { what: 'Certificates issued', ours: perSecond, unit: '/s' },
    { what: 'CPU time of the server for a certificate', ours: cpu * 1e6, unit: 'µs' },
  ];
}
