/** Two cells behind the real HAProxy, with the configuration that `slipway cells write` makes. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { type CellsConfig, readCells } from '../../cells/config.ts';
import { writeCells } from '../../cells/haproxy/files.ts';
import { moveLive } from '../../cells/moves/live/coordinator.ts';
import type { Server } from '../../src/process/server.ts';
import { temporaryDirectory } from './directory.ts';
import { freePort } from './free-port.ts';
import { type Haproxy, startHaproxy } from './haproxy.ts';
import { launch } from './process.ts';
import { type Options, Service, startService } from './service.ts';

/** Where a cell is. */
export interface Place {
  url: string;
  mqttPort: number;
  mqttsPort?: number | undefined;
}

/** The slots of the first cell and of the second. */
export const halves = ['000-7ff', '800-fff'] as const;

export interface Proxied {
  proxy: Haproxy;
  config: CellsConfig;
  /** Where `haproxy.cfg` and its maps are. */
  directory: string;
  url: string;
  /** Ports of HAProxy. */
  ports: { http: number; mqtt: number; mqtts: number };
  /** Starts HAProxy again, which then reads its files. */
  restart(): Promise<void>;
}

export function placeOf({ server }: Service): Place {
  return { url: server.url, mqttPort: server.mqttPort, mqttsPort: server.ctx.broker.addresses.mqtts };
}

/** One cell: it believes the proxy, and its accounts have slots of its half. */
export function startCell(t: Test, half: 0 | 1, { env, ...options }: Options = {}): Promise<Service> {
  const slots = { SLIPWAY_SLOTS: halves[half], SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' };
  return startService(t, { ...options, env: { ...slots, SLIPWAY_ADMIN_EMAIL: 'admin@example.com', ...env } });
}

/** HAProxy in front of two cells; `lines` are further lines of each cell and of `public` in cells.yaml. */
export async function startProxy(
  t: Test,
  cells: readonly [Place, Place],
  lines: {
    cells?: readonly [string, string];
    public?: string;
    accounts?: string;
    /** SLIPWAY_METRICS_TOKEN of the cells. */
    token?: string;
    /** Changes `haproxy.cfg` before it is read. */
    edit?(configuration: string): string;
  } = {},
): Promise<Proxied> {
  const directory = temporaryDirectory(t);
  const out = join(directory, 'haproxy');
  mkdirSync(out);
  const ports = { http: await freePort(), mqtt: await freePort(), mqtts: await freePort() };
  const adminSocket = join(directory, 'admin.sock');
  const cell = (place: 0 | 1) => {
    const { url, mqttPort, mqttsPort } = cells[place];
    const places = `address: 127.0.0.1, http: ${new URL(url).port}, mqtt: ${mqttPort}, mqtts: ${mqttsPort ?? 8883}`;
    return `{ ${places}, slots: ${halves[place]}${lines.cells?.[place] ?? ''} }`;
  };
  const text = `cells:
  c01: ${cell(0)}
  c02: ${cell(1)}
public:
  { address: 127.0.0.1, http: ${ports.http}, mqtt: ${ports.mqtt}, mqtts: ${ports.mqtts}, adminSocket: ${adminSocket},
    user: ${userInfo().username}${lines.public ?? ''} }
${lines.accounts ?? ''}`;
  const file = join(directory, 'cells.yaml');
  writeFileSync(file, text);
  const config = readCells(text);
  writeCells(config, out);
  const configuration = join(out, 'haproxy.cfg');
  if (lines.edit) writeFileSync(configuration, lines.edit(readFileSync(configuration, 'utf8')));
  const env: Record<string, string> = lines.token === undefined ? {} : { SLIPWAY_METRICS_TOKEN: lines.token };
  const proxy = await startHaproxy(configuration, adminSocket, env);
  const scheme = config.public.certificate === undefined ? 'http' : 'https';
  const proxied: Proxied = {
    proxy,
    config,
    directory: out,
    url: `${scheme}://127.0.0.1:${ports.http}`,
    ports,
    restart: async () => {
      await proxied.proxy.stop();
      proxied.proxy = await startHaproxy(configuration, adminSocket, env);
    },
  };
  t.teardown(() => proxied.proxy.stop());
  return proxied;
}

export const moveToken = 'a-token-that-moves-whole-accounts';

/** Two cells behind HAProxy with one clock, and an account in the first one that is to move. */
export async function startMovable(t: Test) {
  // The command that moves reads it.
  process.env.SLIPWAY_MOVE_TOKEN = moveToken;
  const env = { SLIPWAY_MOVE_TOKEN: moveToken };
  const time = { now: Date.now() };
  const clock = { now: () => time.now };
  const source = await startCell(t, 0, { env, clock });
  const directory = temporaryDirectory(t);
  cpSync(join(source.directory, 'keys'), join(directory, 'keys'), { recursive: true });
  const target = await startCell(t, 1, { env, clock, directory });
  const proxied = await startProxy(t, [placeOf(source), placeOf(target)]);
  const account = Object.assign(through(proxied, source), await source.account());
  t.teardown(() => account.close());
  const config = join(proxied.directory, '..', 'cells.yaml');
  const move = (onPaused: () => Promise<void>, onCopying = () => {}) =>
    moveLive({ config, to: 'c02', undo: false }, account.accountId, async (step) => {
      if (step === 'copying') onCopying();
      if (step.startsWith('paused')) await onPaused();
    });
  const undo = () => moveLive({ config, to: 'c02', undo: true }, account.accountId, () => {});
  return { time, source, target, account, move, undo };
}

/** Settings of a service that a test speaks to through HAProxy. */
export const cellOfTests = { SLIPWAY_SLOTS: halves[0], SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' };

/** The other cell of all tests of this process: nobody's account is there. */
let other: Promise<Place> | undefined;

/** Puts HAProxy in front of a service of a test and of another cell. */
export async function behindProxy(t: Test, service: Service): Promise<Service> {
  other ??= startOther();
  const tls = service.server.url.startsWith('https:') ? ', tls: true' : '';
  const proxied = await startProxy(t, [placeOf(service), await other], { cells: [tls, ''] });
  const reached = through(proxied, service);
  t.teardown(() => reached.close());
  return reached;
}

/** A process of its own, which ends with this one. */
async function startOther(): Promise<Place> {
  const directory = mkdtempSync(join(tmpdir(), 'slipway-other-'));
  const { child, listening } = launch(directory, { SLIPWAY_SLOTS: halves[1], SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' });
  process.once('exit', () => {
    child.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  });
  const place = await listening;
  child.unref();
  child.stdout?.destroy();
  return place;
}

/** The same service, as clients reach it through the proxy. */
export function through({ url, ports }: Proxied, service: Service): Service {
  const server: Server = Object.create(service.server, { url: { value: url }, mqttPort: { value: ports.mqtt } });
  const proxied = new Service(server, service.directory, service.secrets);
  proxied.accountId = service.accountId;
  proxied.admin = service.admin;
  proxied.direct = service;
  return proxied;
}
