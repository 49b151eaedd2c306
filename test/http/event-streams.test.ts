/** Event streams end as chunked bodies end: `curl` exits with 0, and the log of a browser stays empty. */
import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { get as getSecure } from 'node:https';
import { promisify } from 'node:util';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { versionOf } from '../broker/fixture.ts';
import { serials } from '../factory/command.ts';
import { publish, rollOut } from '../firmware/fleet.ts';
import { postRows } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

const hasCurl = spawnSync('curl', ['--version']).status === 0;
const run = promisify(execFile);

/** A reader of each kind of event stream of the API. Resolves to its end when all of them read. */
async function readers(service: Service, token: string, paths: string[]) {
  const ends: Array<Promise<string>> = [];
  for (const path of paths) {
    const url = `${service.server.url}/api/v1${path}`;
    const asked = (url.startsWith('https') ? getSecure : get)(url, { headers: { authorization: `Bearer ${token}` } });
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    if (response.statusCode !== 200) throw new Error(`${path} answered ${response.statusCode}`);
    await once(response, 'data');
    ends.push(once(response.resume(), 'close').then(() => (response.complete ? 'complete' : `${path} was cut off`)));
    if (!hasCurl) continue;
    // From standard input: the list of processes shows arguments to everybody.
    const curl = run('curl', ['-sSNk', '-K', '-', url]);
    curl.child.stdin?.end(`header = "authorization: Bearer ${token}"\n`);
    await once(curl.child.stdout as NodeJS.ReadableStream, 'data');
    ends.push(
      curl.then(
        () => 'complete',
        ({ code, stderr }) => `curl of ${path} ended with ${code}: ${stderr}`,
      ),
    );
  }
  return { ended: async (t: Test) => t.same(await Promise.all(ends), Array(ends.length).fill('complete')) };
}

/** The paths of a stream of messages, of a rollout that does not begin, and of a job that takes a while. */
async function paths(service: Service, token: string) {
  const template = await service.template();
  const { device } = await service.device({ deviceTemplateId: template.id });
  const firmware = await publish(service, template.id, '2.0');
  const later = new Date(Date.now() + 3_600_000).toISOString();
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] }, startAt: later });
  const posted = await postRows(service, serials(5000, service.unique('JOB')), '', { token });
  const stream = `/stream?topics=${encodeURIComponent(service.topic(device.id, '#'))}`;
  return {
    device,
    stream,
    all: [stream, `/firmware/rollouts/${id}/events`, `/provisioning/jobs/${posted.body.job.id}/events`],
  };
}

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

t.test('they end so at a logout', async (t) => {
  const { jwt } = await service.loginAs(adminEmail, adminPassword);
  const { all } = await paths(service, jwt);
  const { ended } = await readers(service, jwt, all);
  await service.ok('POST', '/api/v1/sessions/logout', { token: jwt });
  await ended(t);
});

t.test('they end so when the reader is deleted', async (t) => {
  const application = await service.create('/applications', 'application', { name: 'Reader', kind: 'backEnd' });
  const body = { accountId: service.accountId, appId: application.id, appToken: application.appToken };
  const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', { token: null, body });
  const { all } = await paths(service, jwt);
  const { ended } = await readers(service, jwt, all);
  await service.ok('DELETE', `/api/v1/applications/${application.id}`);
  await ended(t);
});

t.test('they end so when the device of a stream is deleted', async (t) => {
  const { device, stream } = await paths(service, service.admin);
  const { ended } = await readers(service, service.admin, [stream]);
  const etag = await versionOf(service, device.id);
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag } });
  await ended(t);
});

t.test('they end so when the server stops, with and without TLS', async (t) => {
  for (const env of [{}, certificate(t)]) {
    const own = await startService(t, { env });
    const { all } = await paths(own, own.admin);
    const { ended } = await readers(own, own.admin, all);
    await Promise.all([own.close(), ended(t)]);
  }
});

t.end();
