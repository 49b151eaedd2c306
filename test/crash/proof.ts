/** The proof that `kill -9` loses nothing: load, a kill at a random moment, a restart, and a look at all that was promised. */
import { cpSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Equipped, equip } from '../../bench/equip.ts';
import { openLink, publishBytes } from '../../bench/link.ts';
import { seed, seedAdmin } from '../../bench/seed.ts';
import { connectAll } from '../../bench/storm.ts';
import { dice } from '../support/dice.ts';
import { type Launched, launch, type Running } from '../support/process.ts';
import { Api } from './api.ts';
import { type Acknowledged, checkConnected, checkHeard, checkStored, connectedIds } from './check.ts';
import { type Fleet, makeFleet } from './fleet.ts';
import { checkFiles, openCheckpoints, stopInCheckpoint } from './moments.ts';

/** Milliseconds within which a kill during a start falls, at least. */
const startTime = 400;
/** Milliseconds after the clients have come back within which a kill among their first packets falls. */
const returnTime = 300;

/** The share of the load's time that passes before a kill at least, so that there is something to lose. */
const minLoad = 0.2;

/** When the process is killed, in turns: under load and again while it starts or clients return, in a checkpoint, under load. */
const kinds = ['start', 'return', 'checkpoint', 'load'] as const;

export interface Settings {
  directory: string;
  rounds: number;
  /** The same seed chooses the same moments. */
  seed: number;
  devices: number;
  /** Milliseconds of load before a kill, at most. */
  loadTime: number;
  /** After each kill the next process starts on a copy of the bytes in another directory. */
  move?: boolean;
  /** So many devices are connected when the process is killed after the last round, and all come back at once. */
  fleet?: number;
  say(line: string): void;
}

export interface Proof {
  losses: string[];
  acknowledged: number;
  writes: number;
  kills: number;
  /** Kills that left a checkpoint half done. */
  inCheckpoint: number;
  /** Milliseconds from the start of the process to its first answers over HTTP and MQTT, of each start. */
  starts: number[];
  /** Milliseconds from the start of the process to the first message that it acknowledged, of each start. */
  firstAcknowledgements: number[];
  /** Milliseconds from the start of the process until the whole fleet had its CONNACK. */
  fleetBack: number | undefined;
}

/** Runs all rounds. @throws Error when the service does not come back, or a client is refused. */
export async function proveCrashes(settings: Settings): Promise<Proof> {
  const { directory, devices, say } = settings;
  const accountId = await seed(directory, devices, () => {});
  const fleet = settings.fleet ? await equip(directory, settings.fleet) : [];
  const proof: Proof = {
    losses: [],
    acknowledged: 0,
    writes: 0,
    kills: 0,
    inCheckpoint: 0,
    starts: [],
    firstAcknowledgements: [],
    fleetBack: undefined,
  };
  const stage = new Stage(settings, new Api(accountId, seedAdmin), proof);
  try {
    await stage.setUp();
    say(`round  kill        after ms  in checkpoint  acknowledged  writes  ready ms  lost  (${devices} devices)`);
    for (let round = 1; round <= settings.rounds; round += 1) await stage.round(round);
    if (fleet.length > 0) await stage.returnOf(fleet);
    await stage.finish();
  } finally {
    stage.abandon();
  }
  return proof;
}

class Stage {
  readonly #settings: Settings;
  /** Where the bytes are now. */
  #directory: string;
  #moves = 0;
  readonly #api: Api;
  readonly #proof: Proof;
  readonly #dice: () => number;
  #launched: Launched | undefined;
  #server: Running | undefined;
  #fleet: Fleet | undefined;
  #startTook = 0;
  /** All that was acknowledged in all rounds. */
  readonly #all: Acknowledged = new Map();

  constructor(settings: Settings, api: Api, proof: Proof) {
    this.#settings = settings;
    this.#directory = settings.directory;
    this.#api = api;
    this.#proof = proof;
    this.#dice = dice(settings.seed);
  }

  async setUp(): Promise<void> {
    const { mqttPort } = await this.#start();
    await this.#api.login();
    this.#fleet = await makeFleet(this.#api);
    const { present, absent, sources } = this.#fleet;
    for (const subscriber of [present, absent]) await subscriber.connect(mqttPort, 'new');
    await absent.disconnect();
    for (const { publisher } of sources) await publisher.connect(mqttPort);
  }

  async round(round: number): Promise<void> {
    const kind = kinds[(round - 1) % kinds.length];
    const { sources, writers } = this.#parts();
    const from = new Map(sources.map(({ publisher }) => [publisher.stream.topic, publisher.sent]));
    for (const { publisher } of sources) publisher.run();
    let isOver = false;
    const writing = Promise.all(writers.map((writer) => writer.run(() => isOver)));
    const began = performance.now();
    // The time is what is tested: a kill at any moment.
    await sleep((minLoad + (1 - minLoad) * this.#dice()) * this.#settings.loadTime);
    if (kind === 'checkpoint' && this.#launched) await stopInCheckpoint(this.#directory, this.#launched.child);
    const after = Math.round(performance.now() - began);
    await this.#kill();
    isOver = true;
    const writes = (await writing).reduce((sum, count) => sum + count, 0);
    const acknowledged = this.#takeAcknowledged();
    const open = openCheckpoints(this.#directory);
    const losses = checkFiles(this.#directory);

    for (let more = kind === 'start' ? 1 + Math.floor(this.#dice() * 3) : 0; more > 0; more -= 1)
      await this.#killWhileStarting();
    if (kind === 'return') await this.#killAmongReturning();
    await this.#start();
    losses.push(...(await this.#check(acknowledged, from)));

    this.#proof.losses.push(...losses.map((loss) => `round ${round}, ${kind}: ${loss}`));
    const count = [...acknowledged.values()].reduce((sum, numbers) => sum + numbers.length, 0);
    this.#proof.acknowledged += count;
    this.#proof.writes += writes;
    if (open.length > 0) this.#proof.inCheckpoint += 1;
    this.#report([round, kind, after, open.map((name) => name.slice(0, 8)).join() || '-', count, writes], losses);
  }

  /** Kills the process while the devices are connected, and waits until the next one has them all back with their sessions. */
  async returnOf(devices: Equipped[]): Promise<void> {
    const before = await connectAll(this.#running(), devices);
    const closed = Promise.all([...before.links.values()].map((link) => link.closed));
    await this.#kill();
    await closed;
    const from = performance.now();
    const { mqttPort } = await this.#start();
    const { links } = await connectAll({ mqttPort }, devices);
    this.#proof.fleetBack = performance.now() - from;
    const ended = Promise.all([...links.values()].map((link) => link.closed));
    for (const { socket } of links.values()) socket.destroy();
    await ended;
    // They come back without a message on their way; publishers and subscribers come back for what is checked at the end.
    const { sources, present } = this.#parts();
    await present.connect(mqttPort, 'stored');
    for (const { publisher } of sources) await publisher.connect(mqttPort);
  }

  /** Everything once more, in all rounds together, and the files after a clean end. */
  async finish(): Promise<void> {
    const { mqttPort } = this.#running();
    const { sources, present } = this.#parts();
    const losses = await checkStored(this.#api, mqttPort, this.#parts(), this.#all, new Map());
    await present.disconnect();
    const code = await this.#running().stop('SIGTERM');
    if (code !== 0) losses.push(`the clean end has the exit code ${code}`);
    for (const { publisher } of sources) await publisher.ended();
    losses.push(...checkFiles(this.#directory));
    this.#proof.losses.push(...losses.map((loss) => `in the end: ${loss}`));
  }

  abandon(): void {
    this.#launched?.child.kill('SIGKILL');
  }

  /** Starts the service and waits for its first answers: 200 to a known token, CONNACK, and PUBACK. */
  async #start(): Promise<Running> {
    const began = performance.now();
    const server = await this.#launch().listening;
    this.#server = server;
    this.#api.url = server.url;
    this.#api.mqttPort = server.mqttPort;
    if (this.#fleet) {
      await this.#api.ok('GET', `/api/v1/devices/${this.#fleet.sources[0]?.deviceId}`);
      await publishFirst(server.mqttPort, this.#fleet);
      this.#proof.firstAcknowledgements.push(performance.now() - began);
    }
    this.#startTook = performance.now() - began;
    this.#proof.starts.push(this.#startTook);
    return server;
  }

  /** Queues have no bound here: an absent subscriber is promised everything. */
  #launch(): Launched {
    this.#launched = launch(this.#directory, { SLIPWAY_MQTT_MAX_QUEUE: '0' });
    return this.#launched;
  }

  /** Kills the process and waits until everybody has noticed. */
  async #kill(): Promise<void> {
    this.#launched?.child.kill('SIGKILL');
    await this.#launched?.ended;
    this.#proof.kills += 1;
    const { sources, present, absent } = this.#parts();
    for (const { publisher } of sources) await publisher.ended();
    for (const subscriber of [present, absent]) await subscriber.ended();
    if (this.#settings.move) this.#move();
  }

  /** Copies the bytes as the death has left them, and gives up the original. */
  #move(): void {
    const from = this.#directory;
    this.#moves += 1;
    this.#directory = join(this.#settings.directory, `moved-${this.#moves}`);
    mkdirSync(this.#directory, { mode: 0o700 });
    for (const name of readdirSync(from))
      if (!name.startsWith('moved-')) {
        cpSync(join(from, name), join(this.#directory, name), { recursive: true, preserveTimestamps: true });
        rmSync(join(from, name), { recursive: true });
      }
  }

  async #killWhileStarting(): Promise<void> {
    this.#launch();
    await sleep(this.#dice() * Math.max(startTime, this.#startTook));
    await this.#kill();
  }

  async #killAmongReturning(): Promise<void> {
    const { mqttPort } = await this.#start();
    const { sources, present, absent } = this.#parts();
    const returning = [
      ...[present, absent].map((subscriber) => subscriber.connect(mqttPort, 'stored')),
      ...sources.map(({ publisher }) => publisher.connect(mqttPort)),
    ];
    await sleep(this.#dice() * returnTime);
    this.#launched?.child.kill('SIGKILL');
    // Some are cut off before CONNACK.
    await Promise.allSettled(returning);
    await this.#kill();
  }

  async #check(acknowledged: Acknowledged, from: Map<string, number>): Promise<string[]> {
    const { mqttPort } = this.#running();
    const fleet = this.#parts();
    const { sources, present, absent, writers } = fleet;
    const losses = await checkConnected(this.#api, []);
    for (const subscriber of [present, absent]) await subscriber.connect(mqttPort, 'stored');
    losses.push(...(await checkHeard(fleet, acknowledged)));
    losses.push(...(await checkStored(this.#api, mqttPort, fleet, acknowledged, from)));
    for (const writer of writers) losses.push(...(await writer.check(mqttPort)));

    // What was open at the end is sent again now, and must not come twice where it must come once.
    for (const { publisher } of sources) await publisher.connect(mqttPort);
    losses.push(...(await checkConnected(this.#api, connectedIds(sources))));
    await Promise.all(sources.map(({ publisher }) => publisher.settle()));
    const resent = this.#takeAcknowledged();
    losses.push(...(await checkHeard(fleet, resent)), ...(await checkStored(this.#api, mqttPort, fleet, resent, from)));
    await absent.disconnect();
    return losses;
  }

  #takeAcknowledged(): Acknowledged {
    const taken: Acknowledged = new Map();
    for (const { publisher } of this.#parts().sources) {
      const { topic } = publisher.stream;
      const numbers = publisher.takeAcknowledged();
      taken.set(topic, numbers);
      this.#all.set(topic, (this.#all.get(topic) ?? []).concat(numbers));
    }
    return taken;
  }

  #report([round, kind, after, open, count, writes]: Array<string | number | undefined>, losses: string[]): void {
    const columns: Array<[string | number | undefined, number]> = [
      [round, 5],
      [after, 14 - `${kind}`.length + 6],
      [open, 13],
      [count, 12],
      [writes, 6],
      [Math.round(this.#startTook), 8],
      [losses.length, 4],
    ];
    const [first, ...rest] = columns.map(([value, width]) => `${value}`.padStart(width));
    this.#settings.say(`${first}  ${kind}${rest.join('  ')}`);
    for (const loss of losses) this.#settings.say(`       ! ${loss}`);
  }

  #parts(): Fleet {
    if (!this.#fleet) throw new Error('not set up');
    return this.#fleet;
  }

  #running(): Running {
    if (!this.#server) throw new Error('not started');
    return this.#server;
  }
}

/** Connects, and publishes a message that is stored; resolves when it is acknowledged. */
async function publishFirst(port: number, { visitor, probeTopic }: Fleet): Promise<void> {
  let acknowledge = () => {};
  const acknowledged = new Promise<true>((resolve) => {
    acknowledge = () => resolve(true);
  });
  const link = await openLink({ port }, visitor, ({ cmd }) => cmd === 'puback' && acknowledge());
  if (link.returnCode !== 0) throw new Error(`CONNACK ${link.returnCode} after the start`);
  link.send(publishBytes(probeTopic, '1', { qos: 1, messageId: 1 }));
  if (!(await Promise.race([acknowledged, link.closed]))) throw new Error('the connection ended before PUBACK');
  link.send({ cmd: 'disconnect' });
}
