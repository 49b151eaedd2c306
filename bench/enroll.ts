/** Devices that enroll, with a secret and with a certificate, next to others who ask; then renew.ts. */
import { execFileSync } from 'node:child_process';
import { type Api, logIn } from './api.ts';
import { startAsking } from './asker.ts';
import { equip } from './equip.ts';
import { at, described, type Row } from './figures.ts';
import { HttpLine, rateOf } from './http-load.ts';
import { type Load, measureIssuing, measureRenewals } from './renew.ts';
import type { Bench } from './sizes.ts';

/** Enrollments a second, and the longest that others may wait (p99, milliseconds). */
const secretFigure = 500;
const certificateFigure = 250;
const othersFigure = 100;
const connections = 32;
const duration = 10_000;

interface Group {
  id: string;
  groupKey?: string;
  claimSecret?: string;
}

export async function measureEnrollment({ size, directory, serve }: Bench): Promise<Row[]> {
  const seeded = await directory(size.fleet);
  const devices = await equip(seeded, size.fleet);
  const accountId = devices[0]?.accountId ?? '';
  const server = await serve(seeded);
  try {
    const api = await logIn(server, accountId);
    const taken = Math.min(duration, 100 * size.asks);
    const load = { server, api, accountId, taken };
    const secrets = await measureGroup(load, 'a secret', secretFigure, await newGroup(api, accountId, 'Secrets'), {});
    const { certificateAuthority } = await api.call<{ certificateAuthority: { id: string } }>(
      'POST',
      '/access/certificate-authorities',
      { accountId, name: 'Bench', issuing: true },
    );
    const more = { issues: 'certificate', certificateAuthorityId: certificateAuthority.id };
    const signed = await newGroup(api, accountId, 'Certificates', more);
    // One key for all: making keys is the devices' work.
    const csr = newRequest();
    const certificates = await measureGroup(load, 'a P-256 certificate', certificateFigure, signed, { csr });
    const issued = await measureIssuing(load, devices, certificateAuthority.id, csr);
    return [...secrets, ...certificates, ...issued, ...(await measureRenewals(load, devices))];
  } finally {
    await server.stop();
  }
}

/** So many devices of a group as come through, next to somebody who asks. */
async function measureGroup(
  { server, api, accountId, taken }: Load,
  what: string,
  figure: number,
  group: Group,
  more: object,
): Promise<Row[]> {
  const port = Number(new URL(server.url).port);
  let next = 0;
  const request = () => {
    next += 1;
    return enrollBytes(group, { serialNumber: `E-${next}`, ...more });
  };
  await warmUp(port, request);
  const asking = startAsking(`${server.url}/devices?accountId=${accountId}&pageSize=20`, api.token);
  const [before, cpuBefore] = [next, server.cpu()];
  const { perSecond, times } = await rateOf(port, connections, taken, request);
  const cpu = (server.cpu() - cpuBefore) / (next - before);
  const asked = await asking.stop();
  console.log(`\n  enrollments with ${what}: ${Math.round(perSecond)} /s, ${described(times)}`);
  console.log(`    CPU time of the server: ${Math.round(cpu * 1e6)} µs each, with those who ask`);
  console.log(`  GET a page of devices meanwhile  ${described(asked)}\n`);
  const others = { ours: at(asked, 0.99), unit: 'ms', figure: { below: othersFigure } };
  return [
    { what: `Enrollments with ${what}`, ours: perSecond, unit: '/s', figure: { atLeast: figure } },
    { what: `CPU time of the server for one with ${what}`, ours: cpu * 1e6, unit: 'µs' },
    { what: `GET a page of devices next to those with ${what}, p99`, ...others },
  ];
}

function newRequest(): string {
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', '/dev/null'];
  return execFileSync('openssl', ['req', '-new', ...kind, '-subj', '/CN=bench'], { encoding: 'utf8', stdio: 'pipe' });
}

async function newGroup({ call }: Api, accountId: string, name: string, more: object = {}): Promise<Group> {
  const { deviceTemplates } = await call<{ deviceTemplates: { results: Array<{ id: string }> } }>(
    'GET',
    `/devices/templates?accountId=${accountId}`,
  );
  const deviceTemplateId = deviceTemplates.results[0]?.id;
  const body = { accountId, name, deviceTemplateId, proof: 'claimSecret', ...more };
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
