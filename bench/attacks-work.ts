/** Harm that is done with work addressed to many devices: rollouts, commands, jobs. */

import { type Attack, again, ask, demand, type Means } from './attack-tools.ts';
import { cborOf, deviceOf, speak } from './attacks-downlink.ts';
import { offerFirmware, publishFirmware } from './attacks-http.ts';
import { pourPackets } from './attacks-mqtt.ts';

/** What a rollout may name, and a job that has ids. */
const maxTargets = 10_000;
const maxRows = 50_000;
/** As many characters as a serial number may have. */
const longest = 255;
/** Devices of each small job. */
const devicesOfJob = 100;

export const workAttacks: Record<string, Attack> = {
  patterns: {
    shows: 'a rollout whose pattern has 100 wildcards, for serial numbers of 255 times the same letter',
    run: async (means, begun) => {
      const { accountId, deviceTemplateId } = means;
      const body = { accountId, deviceTemplateId, serialNumber: 'a'.repeat(longest) };
      await demand(means, 'POST', '/devices', { body });
      const firmwarePackageId = await publishFirmware(means, 1024);
      begun();
      const target = { filter: { serialNumber: `${'*a'.repeat(100)}*b` } };
      await again(1, () =>
        ask(means, 'POST', '/firmware/rollouts', { body: { accountId, firmwarePackageId, target } }),
      );
    },
  },
  'named-rollouts': {
    shows: `rollouts that name ${maxTargets} devices, read and followed, 32 at once`,
    run: async (means, begun) => {
      const id = await rollOutByName(means);
      for (let n = 0; n < 20; n += 1) void ask(means, 'GET', `/firmware/rollouts/${id}/events`);
      begun();
      await Promise.all([
        again(32, () => ask(means, 'GET', `/firmware/rollouts/${id}`)),
        speak(
          means,
          ({ root }) => `${root}/_firmware/status`,
          (n) => JSON.stringify({ state: 'downloading', bytes: n }),
        ),
      ]);
    },
  },
  'changed-rollouts': {
    shows: `a rollout of ${maxTargets} devices that is paused, resumed and tried again, 16 at once`,
    run: async (means, begun) => {
      const id = await rollOutByName(means);
      begun();
      const verbs = ['pause', 'resume', 'retry'];
      await again(16, (n) => ask(means, 'POST', `/firmware/rollouts/${id}/${verbs[n % 3]}`));
    },
  },
  chunks: {
    shows: 'pieces of a firmware file on the control topics, for 4 devices as fast as they are asked for',
    run: async (means, begun) => {
      const { revision } = await offerFirmware(means, 1024 * 1024);
      begun();
      const asked = { msgtype: 2, msgver: 1, N: 'app.bin', R: revision, L: 1024 };
      await speak(
        means,
        ({ id }) => `slipway/ctrl/v1/${id}/svc`,
        (n) => cborOf({ ...asked, O: n * 1024 }),
      );
    },
  },
  'file-lists': {
    shows: 'files that 4 devices say they have on the control topics, as fast as it is read',
    run: async (means, begun) => {
      await offerFirmware(means, 1024);
      begun();
      const list = Array.from({ length: 64 }, (_, n) => ({ N: `file-${n}`, R: '1' }));
      await speak(
        means,
        ({ id }) => `slipway/ctrl/v1/${id}/svc`,
        () => cborOf({ msgtype: 0, msgver: 1, list, L: true }),
      );
    },
  },
  'offer-listeners': {
    shows: '4 devices that subscribe to _firmware and unsubscribe, as fast as it is read',
    run: async (means, begun) => {
      await offerFirmware(means, 1024);
      begun();
      await Promise.all(
        Array.from({ length: 4 }, (_, n) => {
          const topic = `${deviceOf(means, n).root}/_firmware`;
          return pourPackets(means, n, [
            { cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] },
            { cmd: 'unsubscribe', messageId: 2, unsubscriptions: [topic] },
          ]);
        }),
      );
    },
  },
  'waiting-commands': {
    shows: 'commands whose answers wait for devices that do not reply, cancelled and sent again, 100 at once',
    run: (means, begun) => {
      begun();
      return again(100, async (n) => {
        const path = `/devices/${deviceOf(means, n).id}/commands`;
        const waiting = ask(means, 'POST', `${path}?wait=1`, { body: { name: 'blink', payload: 'x'.repeat(60_000) } });
        const { commands } = await demand<{ commands: { results: Array<{ id: string }> } }>(
          means,
          'GET',
          `${path}?state=queued`,
        ).catch(() => ({ commands: { results: [] } }));
        for (const { id } of commands.results) await ask(means, 'DELETE', `${path}/${id}`);
        await waiting;
      });
    },
  },
  'named-jobs': {
    shows: `dry runs of bulk jobs that name ${maxRows} devices, 8 at once`,
    run: (means, begun) => {
      begun();
      const ids = Array.from({ length: maxRows }, (_, n) => `${deviceOf(means, 0).id.slice(0, -8)}${10_000_000 + n}`);
      const body = JSON.stringify({ action: 'delete', dryRun: true, ids });
      return again(8, () => ask(means, 'POST', '/devices/jobs', { body }));
    },
  },
  'confirmed-jobs': {
    shows: 'small provisioning jobs whose results are fetched and confirmed, 16 at once',
    run: (means, begun) => {
      begun();
      return again(16, async (n, round) => {
        const body = { rows: Array.from({ length: 5 }, (_, m) => ({ serialNumber: `SMALL-${n}-${round}-${m}` })) };
        const { job } = await demand<Job>(means, 'POST', '/provisioning/jobs', { body }).catch(() => ({
          job: { id: '' },
        }));
        await ask(means, 'GET', `/provisioning/jobs/${job.id}/events`);
        await ask(means, 'GET', `/provisioning/jobs/${job.id}/results`);
        await ask(means, 'POST', `/provisioning/jobs/${job.id}/results/confirm`);
      });
    },
  },
  'undone-jobs': {
    shows: `${maxTargets} devices that jobs delete and recover while others have their serial numbers, again and again`,
    run: async (means, begun) => {
      const ids = await makeDevices(means, maxTargets);
      const { accountId, deviceTemplateId } = means;
      begun();
      await again(1, async () => {
        const { job } = await demand<Job>(means, 'POST', '/devices/jobs', { body: { action: 'delete', ids } });
        await ended(means, job.id);
        for (let n = 0; n < 50; n += 1)
          await ask(means, 'POST', '/devices', {
            body: { accountId, deviceTemplateId, serialNumber: `NAMED-${n * 100}` },
          });
        const undo = await demand<Job>(means, 'POST', `/devices/jobs/${job.id}/undo`);
        await ended(means, undo.job.id);
      });
    },
  },
  'text-lists': {
    shows: `lists of ${maxTargets} devices by parts of serial numbers that nobody has asked for yet, 16 at once`,
    run: async (means, begun) => {
      await makeDevices(means, maxTargets);
      begun();
      await again(16, (n, round) => {
        const part = ['NAM', 'AMED', 'MED-', 'ED-', 'D-1', `D-${round % 100}`][n % 6];
        const sort = ['created', 'lastConnected', 'serialNumber', 'firmwareVersion'][round % 4];
        const query = `serialNumber=${part}&firmwareVersion=${round}&connected=false&sortBy=${sort}&pageSize=1000&page=${1 + (round % 5)}`;
        return ask(means, 'GET', `/devices?accountId=${means.accountId}&${query}`);
      });
    },
  },
};

interface Job {
  job: { id: string };
}

function ended(means: Means, jobId: string): Promise<number> {
  return ask(means, 'GET', `/provisioning/jobs/${jobId}/events`);
}

/** Makes devices with a job. @returns their ids. */
async function makeDevices(means: Means, count: number): Promise<string[]> {
  const rows = Array.from({ length: count }, (_, n) => ({ serialNumber: `NAMED-${n}` }));
  const { job } = await demand<Job>(means, 'POST', '/provisioning/jobs', { body: { rows } });
  await ended(means, job.id);
  const ids: string[] = [];
  for (let page = 1; ids.length < count; page += 1) {
    const query = `accountId=${means.accountId}&serialNumber=NAMED-&fields=id&pageSize=1000&page=${page}`;
    const { devices } = await demand<{ devices: { results: Array<{ id: string }> } }>(
      means,
      'GET',
      `/devices?${query}`,
    );
    ids.push(...devices.results.map(({ id }) => id));
  }
  return ids;
}

/** A rollout that names as many devices as it may, with those that speak; all of them have their offer. */
async function rollOutByName(means: Means): Promise<string> {
  const { accountId } = means;
  const named = await makeDevices(means, maxTargets - devicesOfJob);
  const firmwarePackageId = await publishFirmware(means, 1024);
  const deviceIds = [...means.devices.slice(0, devicesOfJob).map(({ id }) => id), ...named];
  const body = { accountId, firmwarePackageId, target: { deviceIds } };
  const made = await demand<{ firmwareRollout: { id: string } }>(means, 'POST', '/firmware/rollouts', { body });
  const { id } = made.firmwareRollout;
  for (;;) {
    const { firmwareRollout } = await demand<{ firmwareRollout: { counts: Record<string, number> } }>(
      means,
      'GET',
      `/firmware/rollouts/${id}`,
    );
    const { counts } = firmwareRollout;
    if (Object.values(counts).reduce((sum, one) => sum + one, 0) >= deviceIds.length) return id;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
