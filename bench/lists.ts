/** Page 1 of every documented filter and sort of GET /devices, over HTTP, at the size that the directory has. */
import { join } from 'node:path';
import { openSqlite } from '../db/sqlite/open.ts';
import { logIn } from './api.ts';
import { at, described, median, type Row } from './figures.ts';
import { askAgain } from './http-load.ts';
import type { Bench } from './sizes.ts';

const warmUp = 3;
/** How often a query is asked that takes many times the figure. */
const slowAsks = 10;

/** The figure to stay under, p95 in milliseconds, for all queries but the three slowest; and for those. */
const figure = 50;
const slowest = { queries: 3, figure: 1000 };

export async function measureLists({ size, directory, serve }: Bench): Promise<Row[]> {
  const large = await directory(size.large);
  const server = await serve(large);
  try {
    const { accountId, count, sample } = look(large);
    const { token } = await logIn(server, accountId);
    const queries = queriesOf(sample);
    const rounds = `${size.asks} rounds each, ${slowAsks} of slow ones`;
    console.log(`GET /devices, page 1, ${count} devices, ${rounds} (figure: p95 < ${figure} ms)\n`);
    const [host, path] = [new URL(server.url), '/devices'];
    const each: number[] = [];
    for (const query of queries) {
      const line = `${host.pathname}${path}?accountId=${accountId}&${query}`;
      const ask = (asks: number) => askAgain(Number(host.port), line, token, { warmUp, asks });
      const first = await ask(slowAsks);
      const { times, answer } = median(first.times) < 2 * figure ? await ask(size.asks) : first;
      const found = /"count":(\d+)/.exec(answer)?.[1];
      each.push(at(times, 0.95));
      console.log(
        `${at(times, 0.95) < figure ? '  ' : '! '}${described(times)}  ${found ?? 'outside'} found  ${query}`,
      );
    }
    const over = each.filter((p95) => p95 >= figure).length;
    const sorted = each.toSorted((a, b) => a - b);
    console.log(`\n${queries.length - over} of ${queries.length} within the figure`);
    return [
      {
        what: `List, filter, sort, partial match: p95 of all but the ${slowest.queries} slowest of ${queries.length} queries`,
        devices: count,
        ours: sorted.at(-1 - slowest.queries) ?? 0,
        unit: 'ms',
        figure: { below: figure },
      },
      {
        what: 'The same, p95 of the slowest',
        devices: count,
        ours: sorted.at(-1) ?? 0,
        unit: 'ms',
        figure: { below: slowest.figure },
      },
      { what: 'The same, median of their p95', devices: count, ours: median(each), unit: 'ms' },
    ];
  } finally {
    await server.stop();
  }
}

/** Every documented filter and sort, and pairs of filters. */
export function queriesOf(sample: Readonly<Record<string, string>>): string[] {
  const serial = sample.serialNumber ?? '';
  return [
    '',
    ...[
      'created',
      'lastModified',
      'id',
      'deviceTemplateId',
      'organizationId',
      'provisioningState',
      'firmwareVersion',
      'serialNumber',
    ].flatMap((name) => [`sortBy=${name}`, `sortBy=${name}&sortOrder=desc`]),
    ...Object.entries({
      deviceTemplateId: sample.deviceTemplateId,
      organizationId: sample.organizationId,
      provisioningState: 'activated',
      latitude: sample.latitude,
      longitude: sample.longitude,
      lastConnected: sample.lastConnected,
      externalIp: sample.externalIp,
      geoIpLatitude: sample.geoIpLatitude,
      geoIpLongitude: sample.geoIpLongitude,
      reverseDns: sample.reverseDns,
    }).map(([name, value]) => `${name}=${encodeURIComponent(value ?? '')}`),
    'organizationId=null',
    'connected=true',
    'connected=false',
    `serialNumber=${serial.slice(2, 8).toLowerCase()}`,
    `serialNumber=${serial.slice(3, 6)}`,
    ...['s', 'sn', 'Z', 'zz', 'q7', '-0', 'é', 'nothing-like-it'].map(
      (text) => `serialNumber=${encodeURIComponent(text)}`,
    ),
    'serialNumber=SNZ',
    'serialNumber=z&sortBy=created&sortOrder=desc',
    'serialNumber=zz&sortBy=organizationId',
    ...['.', '3', '3.', '3.7', '3.7.1'].map((text) => `firmwareVersion=${text}`),
    'firmwareVersion=3.7.1&provisioningState=activated',
    'firmwareVersion=3.7&provisioningState=activated',
    'serialNumber=zz&connected=false',
    'serialNumber=sn&connected=true',
    `serialNumber=sn&organizationId=${sample.organizationId}`,
    'serialNumber=sn&provisioningState=activated',
    'firmwareVersion=3.&provisioningState=activated',
    'provisioningState=activated&connected=false',
    `deviceTemplateId=${sample.deviceTemplateId}&provisioningState=defined`,
    `deviceTemplateId=${sample.deviceTemplateId}&connected=true`,
    `deviceTemplateId=${sample.deviceTemplateId}&connected=false&sortBy=created`,
    `organizationId=null&provisioningState=associated&connected=true`,
    `organizationId=${sample.organizationId}&deviceTemplateId=${sample.deviceTemplateId}`,
    `organizationId=${sample.organizationId}&sortBy=created&sortOrder=desc`,
    `deviceTemplateId=${sample.deviceTemplateId}&connected=true&sortBy=lastModified&sortOrder=desc`,
    'page=1000000000',
    'serialNumber=sn&page=1000000000',
  ];
}

/** What there is to ask for. The start has told everybody disconnected: some are made connected again. */
export function look(directory: string): { accountId: string; count: number; sample: Record<string, string> } {
  const file = openSqlite(join(directory, 'registry.db'));
  file.exec('UPDATE "devicePresence" SET "connected" = 1 WHERE "row" % 100 = 7');
  const accountId = file.prepare('SELECT "id" FROM "accounts" LIMIT 1').pluck().get() as string;
  const count = file.prepare('SELECT count(*) FROM "devices"').pluck().get() as number;
  const filled = ['organizationId', 'lastConnected', 'geoIpLatitude', 'geoIpLongitude', 'reverseDns', 'latitude'];
  const where = [...filled, 'longitude', 'firmwareVersion'].map((name) => `"${name}" IS NOT NULL`).join(' AND ');
  const sample = file.prepare(`SELECT * FROM "wholeDevices" WHERE ${where} LIMIT 1`).get() as Record<string, string>;
  file.close();
  return { accountId, count, sample };
}
