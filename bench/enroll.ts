/** Devices that enroll with a secret, next to others who ask. */
import { type Api, logIn } from './api.ts';
import { startAsking } from './asker.ts';
import { equip } from './equip.ts';
import { at, described, type Row } from './figures.ts';
import { HttpLine, rateOf } from './http-load.ts';
import type { Bench } from './sizes.ts';

/** Enrollments a second, and the longest that others may wait (p99, milliseconds). */
const secretFigure = 500;
const othersFigure = 100;
const connections = 32;
const duration = 10_000;

interface Group {
  id: string;
  groupKey?: string;
  claimSecret?: string;
}

export async function measureEnrollment({ size, directory, serve }: Bench): Promise<Row[]> {
  const seeded = await directory(1000);
  const [device] = await equip(seeded, 1);
  const accountId = device?.accountId ?? '';
  const server = await serve(seeded);
  try {
    const api = await logIn(server, accountId);
    const group = await newGroup(api, accountId);
    const port = Number(new URL(server.url).port);
    let next = 0;
    const request = () => {
      next += 1;
      return enrollBytes(group, { serialNumber: `E-${next}` });
    };
    await warmUp(port, request);
    const asking = startAsking(`${server.url}/devices?accountId=${accountId}&pageSize=20`, api.token);
    const cpuBefore = server.cpu();
    const before = next;
    const taken = Math.min(duration, 100 * size.asks);
    const { perSecond, times } = await rateOf(port, connections, taken, request);
    const cpu = (server.cpu() - cpuBefore) / (next - before);
    const asked = await asking.stop();
    console.log(`\n  enrollments with a secret        ${Math.round(perSecond)} /s, ${described(times)}`);
    console.log(`    CPU time of the server: ${Math.round(cpu * 1e6)} µs each, with those who ask`);
    console.log(`  GET a page of devices meanwhile  ${described(asked)}\n`);
    return [
      { what: 'Enrollments with a secret', ours: perSecond, unit: '/s', figure: { atLeast: secretFigure } },
      { what: 'CPU time of the server for one', ours: cpu * 1e6, unit: 'µs' },
      {
        what: 'GET a page of devices next to them, p99',
        ours: at(asked, 0.99),
        unit: 'ms',
        figure: { below: othersFigure },
      },
    ];
  } finally {
    await server.stop();
  }
}

async function newGroup({ call }: Api, accountId: string, more: object = {}): Promise<Group> {
  const { deviceTemplates } = await call<{ deviceTemplates: { results: Array<{ id: string }> } }>(
    'GET',
    `/devices/templates?accountId=${accountId}`,
  );
  const deviceTemplateId = deviceTemplates.results[0]?.id;
  const body = { accountId, name: 'Bench', deviceTemplateId, proof: 'claimSecret', ...more };
  const { enrollmentGroup } = await call<{ enrollmentGroup: Group }>('POST', '/enrollment-groups', body);
  return enrollmentGroup;
}

async function warmUp(port: number, request: () => Buffer): Promise<void> {
  const line = new HttpLine(port);
  for (let n = 0; n < 200; n += 1) await line.ask(request());
  line.end();
}

/** The bytes of an exchange. */
function enrollBytes({ id, claimSecret = '' }: Group, body: object): Buffer {
  const json = JSON.stringify(body);
  const basic = Buffer.from(`${id}:${claimSecret}`).toString('base64');
  const head = `POST /api/v1/enroll HTTP/1.1\r\nhost: bench\r\nauthorization: Basic ${basic}\r\ncontent-type: application/json`;
  return Buffer.from(`${head}\r\ncontent-length: ${Buffer.byteLength(json)}\r\n\r\n${json}`);
}
