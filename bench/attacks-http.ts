/** Harm that is done over HTTP. */
import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Attack, again, ask, demand, type Means, open } from './attack-tools.ts';
import { floodChat } from './attacks-mqtt.ts';

/** Addresses that strangers come from. */
const addresses = 200;
/** The default of SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS. */
const connectionsPerAddress = 256;
const mebibyte = 1024 * 1024;

const everything = 'pageSize=1000&expand=account,device-template,organization';
const devicesPath = ({ accountId }: Means) => `/devices?accountId=${accountId}&${everything}`;
const seriesPath = ({ devices: [first], series: { from, to } }: Means, query: string) =>
  `/api/v4/data/${first?.root}/temperature?startDateTime=${from}&endDateTime=${to}&${query}`;
const jobBody = (prefix: string, count: number) => ({
  rows: Array.from({ length: count }, (_, n) => ({ serialNumber: `${prefix}-${n}` })),
});

export const httpAttacks: Record<string, Attack> = {
  lists: {
    shows: 'lists of 1,000 devices with 64 KiB of values each and all their parents, 16 at once',
    run: (means, begun) => {
      begun();
      return again(16, () => ask(means, 'GET', devicesPath(means)));
    },
  },
  commands: {
    shows: '1,000 commands of 64 KiB of nested JSON read with pageSize=1000, 4 at once',
    run: async (means, begun) => {
      const path = `/devices/${means.devices[0]?.id}/commands`;
      await fillCommands(means, path, 1000);
      begun();
      return again(4, () => ask(means, 'GET', `${path}?pageSize=1000`));
    },
  },
  'unread-lists': {
    shows: `the same lists asked for on ${connectionsPerAddress} connections that are not read`,
    run: async (means, begun) => {
      const asking = Array.from({ length: connectionsPerAddress }, () =>
        ask(means, 'GET', devicesPath(means), { deaf: true }),
      );
      begun();
      await Promise.all(asking);
      await sleep(2 ** 31 - 1);
    },
  },
  batches: {
    shows: 'batches of 50 such lists, 8 at once',
    run: (means, begun) => {
      begun();
      const one = { method: 'GET', path: `/api/v1${devicesPath(means)}` };
      const body = { requests: Array.from({ length: 50 }, () => one) };
      return again(8, () => ask(means, 'POST', '/batch', { body }));
    },
  },
  exports: {
    shows: 'exports of a series of 300,000 points as CSV and NDJSON, 16 at once',
    run: (means, begun) => {
      begun();
      return again(16, (n) => ask(means, 'GET', seriesPath(means, `format=${n % 2 ? 'csv' : 'ndjson'}`)));
    },
  },
  rollups: {
    shows: 'rollups and pages of the same series, 16 at once',
    run: (means, begun) => {
      begun();
      const queries = ['rollup=1m', 'rollup=1h&timezone=Europe/Berlin&fill=null', 'pageSize=1000'];
      return again(16, (n) => ask(means, 'GET', seriesPath(means, queries[n % queries.length] ?? '')));
    },
  },
  logs: {
    shows: 'log entries written and searched for, 16 at once',
    run: (means, begun) => {
      begun();
      const words = 'pump motor valve temperature exceeded threshold restart network timeout'.split(' ');
      const entries = Array.from({ length: 100 }, (_, n) => ({
        severity: 'info',
        message: words.map((word) => `${word}${n}`).join(' '),
        details: words.join(' '),
      }));
      const body = { query: { bool: { must: [{ match: { details: words.join(' ') } }] } }, size: 1000 };
      const path = `/devices/${means.devices[0]?.id}/logs`;
      return again(16, (n) =>
        n % 2
          ? ask(means, 'POST', path, { body: entries })
          : ask(means, 'POST', '/logs/search', { body: { ...body, sort: [{ message: { order: 'asc' } }] } }).then(() =>
              ask(means, 'POST', '/logs/search', { body }),
            ),
      );
    },
  },
  labels: {
    shows: 'labels of 1,000 units as PNG, 8 at once',
    run: async (means, begun) => {
      const { job } = await demand<Job>(means, 'POST', '/provisioning/jobs', { body: jobBody('LABEL', 1000) });
      await ask(means, 'GET', `/provisioning/jobs/${job.id}/events`);
      begun();
      const formats = ['png', 'svg', 'html'];
      await again(8, (n) => ask(means, 'GET', `/provisioning/jobs/${job.id}/labels?format=${formats[n % 3]}`));
    },
  },
  jobs: {
    shows: 'provisioning jobs of 10,000 rows, 8 at once',
    run: (means, begun) => {
      begun();
      return again(8, (n, round) =>
        ask(means, 'POST', '/provisioning/jobs', { body: jobBody(`JOB-${n}-${round}`, 10_000) }),
      );
    },
  },
  'bulk-jobs': {
    shows: 'bulk jobs over 1,000 devices: dry runs, moves, new secrets, commands; 8 at once',
    run: (means, begun) => {
      begun();
      const filter = { serialNumber: 'ATTACK-' };
      const actions = [
        { action: 'regenerate', dryRun: true },
        { action: 'move', organizationId: means.organizationId },
        { action: 'command', command: { name: 'blink', payload: { text: 'x'.repeat(4000) } } },
        { action: 'regenerate' },
      ];
      return again(8, (n) => ask(means, 'POST', '/devices/jobs', { body: { ...actions[n % 4], filter } }));
    },
  },
  creates: {
    shows: 'devices made with Idempotency-Keys and 900 KiB of nested JSON refused, 32 at once',
    run: (means, begun) => {
      begun();
      const { accountId, deviceTemplateId } = means;
      const nested = `{"accountId":"${accountId}","serialNumber":${'['.repeat(30)}${'[],'.repeat(300_000)}[]${']'.repeat(30)}}`;
      return again(32, (n, round) =>
        n % 8 === 0
          ? ask(means, 'POST', '/devices', { body: nested })
          : ask(means, 'POST', '/devices', {
              body: { accountId, deviceTemplateId, serialNumber: `KEY-${n}-${round}` },
              headers: { 'idempotency-key': `${n}-${round}` },
            }),
      );
    },
  },
  overviews: {
    shows: 'the overview of the last week, 16 at once',
    run: (means, begun) => {
      begun();
      return again(16, () => ask(means, 'GET', '/overview?hours=168'));
    },
  },
  audit: {
    shows: 'pages of 1,000 events of the audit and of trash, deleted and recovered meanwhile, 16 at once',
    run: (means, begun) => {
      begun();
      const { accountId } = means;
      const paths = ['/audit', '/devices/custom-fields', '/channels/templates', '/trash/devices', '/usage'];
      return again(16, (n) => ask(means, 'GET', `${paths[n % paths.length]}?accountId=${accountId}&pageSize=1000`));
    },
  },
  logins: {
    shows: `wrong logins from ${addresses} addresses, 400 at once`,
    victimLogsIn: true,
    run: (means, begun) => {
      begun();
      const { accountId, admin } = means;
      return again(400, (n) =>
        ask(means, 'POST', '/auth/login-user', {
          as: 'stranger',
          from: 2 + (n % addresses),
          body: { accountId, emailAddress: n % 2 ? admin.email : `${n}@bench.example`, password: `wrong ${n}` },
        }),
      );
    },
  },
  'unfinished-bodies': {
    shows: '1,000 logins from 4 addresses whose bodies never end',
    run: (means, begun) => {
      begun();
      const head = {
        as: 'stranger',
        headers: { 'content-type': 'application/json', 'content-length': '16384' },
      } as const;
      return again(
        1000,
        (n) =>
          new Promise<void>((resolve) => {
            const asking = open(means, 'POST', '/auth/login-user', { ...head, from: 2 + (n % 4) });
            asking.once('error', () => setTimeout(resolve, 100));
            asking.once('response', (answer) => answer.resume().once('close', resolve));
            asking.write('{'.padEnd(16_000));
          }),
      );
    },
  },
  strangers: {
    shows: 'the OpenAPI document, pages, forged tokens and paths that do not exist, 64 strangers at once',
    run: (means, begun) => {
      begun();
      const paths = ['//openapi.json', '//docs/', '/devices', '/nothing', '//metrics', '/auth/validate-jwt'];
      const forged = `Bearer ${means.token.slice(0, -8)}AAAAAAAA`;
      return again(64, (n, round) =>
        ask(means, 'GET', paths[(n + round) % paths.length] ?? '', {
          as: 'stranger',
          from: 2 + (n % addresses),
          ...(n % 2 && { headers: { authorization: forged } }),
        }),
      );
    },
  },
  downloads: {
    shows: '200 downloads of 8 MB of firmware at once',
    run: async (means, begun) => {
      const { url } = await offerFirmware(means, 8 * mebibyte);
      begun();
      await again(200, () => ask(means, 'GET', url));
    },
  },
  'slow-downloads': {
    shows: '200 downloads of 8 MB that are not read, and 200 more devices that ask',
    run: async (means, begun) => {
      const { url } = await offerFirmware(means, 8 * mebibyte);
      const deaf = Array.from({ length: 200 }, () => ask(means, 'GET', url, { deaf: true }));
      begun();
      await Promise.all([...deaf, again(16, (n) => ask(means, 'GET', url, { from: 3 + (n % 4) }))]);
    },
  },
  uploads: {
    shows: 'uploads of firmware of 64 MiB, 8 at once',
    run: async (means, begun) => {
      const { accountId, deviceTemplateId } = means;
      const bytes = randomBytes(64 * mebibyte);
      begun();
      await again(8, async (n, round) => {
        const body = { accountId, deviceTemplateId, name: `Firmware ${n} ${round}`, firmwareVersion: `${n}.${round}` };
        const made = await demand<Package>(means, 'POST', '/firmware/packages', { body });
        const path = `/firmware/packages/${made.firmwarePackage.id}/files/app.bin`;
        await ask(means, 'PUT', path, { body: bytes, headers: { 'content-type': 'application/octet-stream' } });
      });
    },
  },
  streams: {
    shows: '200 event streams over everything of an account whose devices flood',
    run: async (means, begun) => {
      const topics = `slipway/v1/${means.accountId}/d/+/chat`;
      for (let n = 0; n < 200; n += 1) void ask(means, 'GET', `/stream?topics=${encodeURIComponent(topics)}`);
      await sleep(500);
      begun();
      await floodChat(means, 20);
    },
  },
};

/** Makes so many commands of the largest size; each is cancelled, so that the next ones find room. */
async function fillCommands(means: Means, path: string, count: number): Promise<void> {
  const body = `{"name":"blink","payload":[${'[],'.repeat(21_800)}[]]}`;
  let left = count;
  const fill = async () => {
    while (left > 0) {
      left -= 1;
      const { command } = await demand<{ command: { id: string } }>(means, 'POST', path, { body });
      await demand(means, 'DELETE', `${path}/${command.id}`);
    }
  };
  await Promise.all(Array.from({ length: 16 }, fill));
}

interface Job {
  job: { id: string };
}
interface Package {
  firmwarePackage: { id: string; version: string };
}

/** Publishes firmware of one file. @returns the id of its package. */
export async function publishFirmware(means: Means, size: number, bytes = randomBytes(size)): Promise<string> {
  const { accountId, deviceTemplateId } = means;
  const body = { accountId, deviceTemplateId, name: 'Firmware', firmwareVersion: '2.0.0' };
  const { firmwarePackage } = await demand<Package>(means, 'POST', '/firmware/packages', { body });
  const path = `/firmware/packages/${firmwarePackage.id}`;
  const headers = { 'content-type': 'application/octet-stream' };
  const put = await demand<Package>(means, 'PUT', `${path}/files/app.bin`, { body: bytes, headers });
  const etag = String(put.firmwarePackage.version);
  await demand(means, 'POST', `${path}/publish`, { headers: { etag } });
  return firmwarePackage.id;
}

/** Publishes firmware and rolls it out. @returns where a device may download it, and the revision of its file. */
export async function offerFirmware(means: Means, size: number): Promise<{ url: string; revision: string }> {
  const { accountId, devices } = means;
  const bytes = randomBytes(size);
  const firmwarePackageId = await publishFirmware(means, size, bytes);
  const target = { organizationId: means.organizationId };
  const rollout = { accountId, firmwarePackageId, target };
  await demand(means, 'POST', '/firmware/rollouts', { body: rollout });
  const [device] = devices;
  if (!device) throw new Error('no device');
  for (;;) {
    const offer = await demand<{ files?: Array<{ url: string; revision: string }> }>(means, 'GET', '/firmware/offer', {
      as: device,
    }).catch(() => undefined);
    const file = offer?.files?.[0];
    if (file) {
      const { url, revision } = file;
      const { pathname, search } = new URL(url);
      if (!pathname.includes(createHash('sha256').update(bytes).digest('hex'))) throw new Error(`another file: ${url}`);
      return { url: pathname + search, revision };
    }
    await sleep(50);
  }
}
