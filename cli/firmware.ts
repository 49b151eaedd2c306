/** `slipway firmware publish|roll-out|status`: packages and rollouts from a shell, with an exit code by the outcome. */
import { createHash, randomUUID } from 'node:crypto';
import { closeSync, existsSync, openSync, readFileSync, readSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findFleetId } from './find-device.ts';
import type { Client } from './line/client.ts';
import { type Connection, printError } from './line/options.ts';
import { withClient } from './line/work.ts';
import { ago, printJson, printPairs, printTable } from './printed.ts';
import { Ending, exitCodes, UsageError } from './usage.ts';

/** Bytes of one request: after a break only these are sent again. */
const partBytes = 4 * 1024 * 1024;
/** Milliseconds between two looks at a rollout. */
const lookEvery = 1000;
/** Rollouts that `status` shows when none is named. */
const shownRollouts = 20;

interface Rollout {
  id: string;
  created: string;
  matched?: { devices?: number; message?: string };
  state: string;
  stage: number | null;
  stages: Array<{ percent: number }>;
  reason: string | null;
  counts: Record<string, number>;
}

interface PublishFlags extends Connection {
  /** Id of the device template. */
  template: string;
  firmwareVersion: string;
  name: string | undefined;
  signature: string | undefined;
}

export async function firmwarePublish(flags: PublishFlags, files: readonly string[]): Promise<void> {
  for (const file of files) if (!existsSync(file)) throw new UsageError(`There is no file ${file}.`);
  const { template: deviceTemplateId, firmwareVersion, signature } = flags;
  const signed = signature === undefined ? undefined : readFileSync(signature).toString('base64');
  await withClient(flags, printError, async (client) => {
    const { accountId } = client;
    const name = flags.name ?? basename(files[0] ?? '');
    const body = { accountId, deviceTemplateId, name, firmwareVersion };
    const made = await client.ok<MadePackage>('POST', '/firmware/packages', { body, idempotencyKey: randomUUID() });
    const { id } = made.firmwarePackage;
    let version = made.firmwarePackage.version;
    for (const file of files) version = await upload(client, id, file, signed);
    const path = `/firmware/packages/${id}/publish`;
    const published = await client.ok<MadePackage>('POST', path, { headers: { etag: version } });
    printJson(published.firmwarePackage);
  });
}

interface MadePackage {
  firmwarePackage: { id: string; version: string };
}

/** Sends a file in parts; the version of the package when it is whole. */
async function upload(client: Client, packageId: string, file: string, signature: string | undefined): Promise<string> {
  const { size } = statSync(file);
  const query = signature === undefined ? '' : `?signature=${encodeURIComponent(signature)}`;
  const path = `/firmware/packages/${packageId}/files/${encodeURIComponent(basename(file))}${query}`;
  const progress = await bar(`${basename(file)} {bar} {percentage}%`, size);
  const hash = createHash('sha256');
  const source = openSync(file, 'r');
  try {
    for (let from = 0; ; ) {
      const part = Buffer.alloc(Math.min(partBytes, size - from));
      readSync(source, part, 0, part.length, from);
      hash.update(part);
      const isLast = from + part.length >= size;
      const headers = {
        'content-range': `bytes ${from}-${from + part.length - 1}/${size}`,
        ...(isLast && { digest: `sha-256=${hash.digest('hex')}` }),
      };
      const answer = await client.ok<Partial<MadePackage>>('PUT', path, {
        body: part,
        type: 'application/octet-stream',
        headers,
      });
      from += part.length;
      progress.at(from);
      if (answer.firmwarePackage) return answer.firmwarePackage.version;
      if (isLast) throw new UsageError(`${file} has changed while it was read.`);
    }
  } finally {
    closeSync(source);
    progress.endBar();
  }
}

interface Target {
  /** Each is field=value. */
  where: string[];
  device: string[];
  organization: string | undefined;
  /** Name or id. */
  fleet: string | undefined;
}

interface RollOutFlags extends Connection, Target {
  package: string;
  stages: string | undefined;
  /** Seconds, as is the deadline. */
  pause: number;
  deadline: number;
  /** Percent. */
  maxFailures: number;
  continuous: boolean;
  watch: boolean;
}

export async function firmwareRollOut(flags: RollOutFlags): Promise<void> {
  const { package: firmwarePackageId, pause: pauseSeconds } = flags;
  const stages = (flags.stages ?? '100').split(',').map((one) => ({ percent: Number(one), pauseSeconds }));
  if (stages.some(({ percent }) => !(percent > 0 && percent <= 100)))
    throw new UsageError('--stages must be percentages that rise to 100, such as 1,10,100.');
  const named = targetOf(flags);
  const { continuous } = flags;
  if (continuous && named) throw new UsageError('--continuous is for --fleet.');
  const body = {
    ...{ firmwarePackageId, stages },
    deviceDeadlineSeconds: flags.deadline,
    maxFailurePercent: flags.maxFailures,
    ...(continuous && { continuous }),
  };
  await withClient(flags, printError, async (client) => {
    const target = named ?? { fleetId: await findFleetId(client, flags.fleet ?? '') };
    const all = { accountId: client.accountId, target, ...body };
    const call = { body: all, idempotencyKey: randomUUID() };
    const { firmwareRollout } = await client.ok<{ firmwareRollout: Rollout }>('POST', '/firmware/rollouts', call);
    const { id, matched = {} } = firmwareRollout;
    if (matched.message !== undefined) printError(matched.message);
    // Its stages would begin one after the other without a device, unless devices may still come.
    if (flags.watch && (continuous || matched.devices !== 0)) return watchRollout(client, id, flags.json);
    print(firmwareRollout, flags.json);
    if (continuous || matched.devices !== 0) return;
    // It would stay, and nobody would know of it; one of a single stage may have finished already.
    const ended = await client.ok<{ firmwareRollout: Rollout }>('POST', `/firmware/rollouts/${id}/cancel`);
    throw new Ending(exitCodes.failed, `The rollout ${id} has no device: it is ${ended.firmwareRollout.state}.`);
  });
}

/** Undefined for a fleet, which the server knows by its id. @throws UsageError for none or several kinds of target. */
function targetOf({ where, device: deviceIds, organization: organizationId, fleet }: Target): object | undefined {
  const given = [where.length > 0, deviceIds.length > 0, organizationId !== undefined, fleet !== undefined];
  if (given.filter(Boolean).length !== 1)
    throw new UsageError("One of --where 'field=value', --device, --organization and --fleet is needed.");
  if (fleet !== undefined) return undefined;
  if (organizationId !== undefined) return { organizationId };
  if (deviceIds.length > 0) return { deviceIds };
  const filter = where.map((one) => {
    const at = one.indexOf('=');
    if (at < 1) throw new UsageError(`--where ${one} must be field=value.`);
    const value = one.slice(at + 1);
    return [one.slice(0, at), value === 'true' || value === 'false' ? value === 'true' : value];
  });
  return { filter: Object.fromEntries(filter) };
}

/** One rollout, or the newest ones. @throws UsageError for --watch without a rollout. */
export async function firmwareStatus(
  flags: Connection & { rollout: string | undefined; watch: boolean },
  [id = flags.rollout]: readonly string[],
): Promise<void> {
  if (flags.watch && id === undefined)
    throw new UsageError('--watch needs --rollout, or the id of a rollout in place.');
  await withClient(flags, printError, async (client) => {
    if (id === undefined) return printNewest(client, flags.json);
    if (flags.watch) return watchRollout(client, id, flags.json);
    print((await read(client, id)).firmwareRollout, flags.json);
  });
}

async function printNewest(client: Client, isJson: boolean): Promise<void> {
  const newest = { accountId: client.accountId, sortBy: 'created', sortOrder: 'desc', pageSize: String(shownRollouts) };
  const path = `/firmware/rollouts?${new URLSearchParams(newest)}`;
  const { firmwareRollouts } = await client.ok<{ firmwareRollouts: { results: Rollout[] } }>('GET', path);
  const { results } = firmwareRollouts;
  if (isJson) {
    for (const rollout of results) printJson(rollout);
    return;
  }
  printTable(
    ['CREATED', 'STATE', 'STAGE', 'DEVICES', 'SUCCEEDED', 'FAILED', 'ID'],
    results.map((rollout) => [
      ago(rollout.created),
      rollout.state,
      stageOf(rollout),
      String(sumOf(rollout)),
      String(sumOf(rollout, ['succeeded'])),
      String(sumOf(rollout, ['failed', 'timedOut'])),
      rollout.id,
    ]),
  );
  if (results.length === 0) printError('No rollout.');
}

function print(rollout: Rollout, isJson: boolean): void {
  if (isJson) {
    printJson(rollout);
    return;
  }
  const { id, state, reason, counts } = rollout;
  printPairs([
    ['Rollout', id],
    ['State', reason === null ? state : `${state}: ${reason}`],
    ['Stage', stageOf(rollout)],
    ['Devices', String(sumOf(rollout))],
    ...Object.entries(counts).flatMap(([name, count]) => (count > 0 ? [[`  ${name}`, String(count)] as const] : [])),
  ]);
}

function stageOf({ stage, stages }: Rollout): string {
  return `${stage ?? 0} of ${stages.length}`;
}

/** Devices in these states; in all where none is named. */
function sumOf({ counts }: Rollout, states = Object.keys(counts)): number {
  return states.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
}

function read(client: Client, id: string): Promise<{ firmwareRollout: Rollout }> {
  return client.ok('GET', `/firmware/rollouts/${encodeURIComponent(id)}`);
}

/** Shows a rollout until it has ended or paused. @throws Ending 1 when not every device has succeeded. */
async function watchRollout(client: Client, id: string, isJson: boolean): Promise<void> {
  const progress = await bar('{bar} {value}/{total} devices have ended, {told}', 1);
  let rollout: Rollout;
  try {
    for (;;) {
      rollout = (await read(client, id)).firmwareRollout;
      const ended = ['succeeded', 'failed', 'timedOut', 'superseded', 'cancelled'];
      progress.at(sumOf(rollout, ended), sumOf(rollout), `stage ${stageOf(rollout)}, ${rollout.state}`);
      if (!['scheduled', 'running'].includes(rollout.state)) break;
      await delay(lookEvery);
    }
  } finally {
    progress.endBar();
  }
  print(rollout, isJson);
  const { failed = 0, timedOut = 0 } = rollout.counts;
  if (rollout.state !== 'finished')
    throw new Ending(exitCodes.failed, `The rollout is ${rollout.state}. ${rollout.reason ?? ''}`.trim());
  if (failed + timedOut > 0) throw new Ending(exitCodes.failed, `${failed + timedOut} devices have failed.`);
}

interface Bar {
  at(value: number, total?: number, told?: string): void;
  endBar(): void;
}

/** A bar on a terminal; elsewhere nothing, for the result is on standard output. */
async function bar(format: string, total: number): Promise<Bar> {
  if (!process.stderr.isTTY) return { at: () => {}, endBar: () => {} };
  const { default: cliProgress } = await import('cli-progress');
  const untouched = { hideCursor: null, linewrap: true };
  const shown = new cliProgress.SingleBar({ format, stream: process.stderr, clearOnComplete: false, ...untouched });
  shown.start(total, 0, { told: '' });
  return {
    at: (value, most, told = '') => {
      if (most !== undefined) shown.setTotal(Math.max(most, 1));
      shown.update(value, { told });
    },
    endBar: () => shown.stop(),
  };
}
