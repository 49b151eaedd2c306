/** Hostile input of every kind against one service. It must answer as documented, log no error, and go on. */
import fc, { type Arbitrary } from 'fast-check';
import { type Caller, type Cast, fill, type Known, makeCast } from './cast.ts';
import { type Said, say, saying } from './downlink.ts';
import { Honest } from './honest.ts';
import type { Pairs } from './hostile.ts';
import { spoil } from './hostile.ts';
import { bytesOfAll5, type Conversation5, conversations5, hearing5 } from './level5.ts';
import {
  bytesOfAll,
  type Conversation,
  conversations,
  exchange,
  type Hearing,
  hearing,
  type Manner,
} from './packets.ts';
import { payloads, reads } from './payloads.ts';
import { type Draft, requests } from './requests.ts';
import { type Got, type Sent, slowAfter, Target } from './target.ts';

/** After so many requests the callers and their things are made again: some have been deleted, logged out, locked. */
const castFor = 250;
/** By how much more memory the process may hold after the parts of MQTT 5. */
const moreMegabytes = 200;
/** Characters of a finding that are printed. */
const shown = 2000;

export interface Settings {
  directory: string;
  /** The same seed makes the same inputs. */
  seed: number;
  /** Inputs of each part, at most; and seconds that each may take. */
  rounds: number;
  seconds: number;
  /** Text in the name of each part that runs. */
  only?: string;
  say(line: string): void;
}

export interface Outcome {
  inputs: number;
  findings: string[];
}

/** Runs all parts, whatever one of them finds. */
export async function fuzz(settings: Settings): Promise<Outcome> {
  const target = new Target(settings.directory);
  const outcome: Outcome = { inputs: 0, findings: [] };
  try {
    await target.start();
    const stage = new Stage(target);
    await run('REST', settings, outcome, stage, requests(target.document), (draft) => stage.send(draft));
    await run('payloads', settings, outcome, stage, payloads, (draft) => stage.sendAndRead(draft));
    for (const over of ['tcp', 'websocket'] as const)
      await run(`MQTT over ${over}`, settings, outcome, stage, conversations(over), (one) => stage.converse(one));
    const before = await target.load();
    for (const over of ['tcp', 'websocket'] as const)
      await run(`MQTT 5 over ${over}`, settings, outcome, stage, conversations5(over), (one) => stage.converse5(one));
    const after = await target.load();
    settings.say(`memory ${before.megabytes} MB before MQTT 5, ${after.megabytes} MB after it`);
    if (!(after.megabytes < before.megabytes + moreMegabytes)) outcome.findings.push('MQTT 5 takes memory');
    if (!(after.heldUp <= before.heldUp)) outcome.findings.push(`held up for 2.5 seconds ${after.heldUp} times`);
    await run('firmware and commands', settings, outcome, stage, saying, (said) => stage.say(said));
    stage.report(settings.say);
    await target.stop();
  } finally {
    target.abandon();
  }
  return outcome;
}

/** One part: inputs until the first finding, which is made as small as it can be. */
async function run<T>(
  part: string,
  { seed, rounds, seconds, only = '', say }: Settings,
  outcome: Outcome,
  stage: Stage,
  inputs: Arbitrary<T>,
  attempt: (input: T) => Promise<void>,
): Promise<void> {
  if (!part.includes(only)) return;
  let tried = 0;
  let last = Promise.resolve();
  const property = fc.asyncProperty(inputs, (input) => {
    tried += 1;
    last = stage.ready().then(() => attempt(input));
    return last.then(() => stage.target.demandSound());
  });
  const limits = { numRuns: rounds, interruptAfterTimeLimit: seconds * 1000, markInterruptAsFailure: false };
  const details = await fc.check(property, { seed, ...limits });
  // When the time is over fast-check does not wait for what has begun.
  await last.catch(() => {});
  outcome.inputs += details.numRuns;
  say(`${part}: ${details.numRuns} inputs, ${details.failed ? 'a FINDING' : 'nothing found'}`);
  if (!details.failed) return;
  const { counterexample, errorInstance, numShrinks } = details;
  const why = errorInstance instanceof Error ? errorInstance.message : String(errorInstance);
  outcome.findings.push(
    [
      `${part}, seed ${seed}, round ${details.numRuns} (${tried} tried, made smaller ${numShrinks} times): ${brief(why)}`,
      brief(JSON.stringify(counterexample?.[0]) ?? ''),
    ].join('\n'),
  );
}

/** The callers, and what was answered to them. */
class Stage {
  #cast: Cast | undefined;
  #casts = 0;
  #used = 0;
  #honest: Honest | undefined;
  readonly #statuses = new Map<number, number>();
  readonly #slow: string[] = [];
  #packets = 0;

  readonly target: Target;

  constructor(target: Target) {
    this.target = target;
  }

  async ready(): Promise<Cast> {
    await this.target.start();
    this.#used += 1;
    if (this.#cast && this.#used < castFor) return this.#cast;
    this.#casts += 1;
    this.#used = 0;
    try {
      this.#cast = await makeCast(this.target, this.#casts);
    } catch {
      await this.target.again();
      this.#cast = await makeCast(this.target, this.#casts);
    }
    return this.#cast;
  }

  /** What was stored must be readable. */
  async sendAndRead(draft: Draft): Promise<void> {
    await this.send(draft);
    if (draft.method === 'GET') return;
    for (const read of reads) await this.send(read);
  }

  /** An honest device next to it stays connected, and is acknowledged afterwards. */
  async converse(conversation: Conversation): Promise<void> {
    const { known } = await this.#present();
    await this.#beside(known, bytesOfAll(conversation, known), conversation, hearing());
  }

  async converse5(conversation: Conversation5): Promise<void> {
    const { known } = await this.#present();
    await this.#beside(known, bytesOfAll5(conversation, known), conversation, hearing5());
  }

  async #beside(known: Known, bytes: Buffer, manner: Manner, hear: Hearing): Promise<void> {
    const honest = await this.#honestDevice(known);
    this.#packets += await exchange(bytes, manner, this.target.url, this.target.mqttPort, hear);
    await honest.publish();
  }

  /** A device that says odd things stays connected, and harms no other one. */
  async say(said: Said[]): Promise<void> {
    const { known } = await this.#present();
    const honest = await this.#honestDevice(known);
    await say(said, known, this.target.mqttPort);
    await honest.publish();
  }

  async #present(): Promise<Cast> {
    return this.#cast ?? this.ready();
  }

  /** Connected once for each cast. */
  async #honestDevice(known: Known): Promise<Honest> {
    if (this.#honest?.known === known) return this.#honest;
    this.#honest?.end();
    this.#honest = await Honest.connect(known, this.target.mqttPort);
    return this.#honest;
  }

  async send(draft: Draft): Promise<void> {
    const { known, headers } = await this.#present();
    const sent = await this.#filled(draft, known, headers);
    const got = await this.target.ask(sent);
    if (!got) return;
    this.#statuses.set(got.status, (this.#statuses.get(got.status) ?? 0) + 1);
    if (got.ms > slowAfter) this.#slow.push(`${Math.round(got.ms)} ms: ${sent.method} ${sent.path.slice(0, 200)}`);
    if (isOut(draft.caller, got)) this.#used = castFor;
  }

  report(say: (line: string) => void): void {
    const counts = [...this.#statuses].sort(([a], [b]) => a - b).map(([status, count]) => `${status}: ${count}`);
    say(`answers ${counts.join(', ')}`);
    say(`${this.#packets} packets of MQTT came back`);
    for (const line of this.#slow) say(`slow, ${line}`);
  }

  async #filled(draft: Draft, known: Cast['known'], headersOf: Record<Caller, Pairs>): Promise<Sent> {
    const path = fill(draft.path, known, encodeURIComponent);
    const full = { ...known, version: '' };
    if (draft.headers.some(([, value]) => value.includes('«version»'))) full.version = await this.#versionOf(path);
    const query = draft.query.map(([name, value]) => `${encodeText(name)}=${encodeText(fill(value, full))}`).join('&');
    const own = draft.headers.map(([name, value]): [string, string] => [name, fill(value, full)]);
    const usual = headersOf[draft.caller].filter(([name]) => !own.some(([other]) => other === name));
    const isJson = own.some(([name, value]) => name === 'content-type' && value.includes('json'));
    return {
      method: draft.method,
      path: query ? `${path}?${query}` : path,
      headers: [...usual, ...own],
      body:
        draft.body === undefined
          ? undefined
          : spoil(Buffer.from(fill(draft.body, full, isJson ? inJson : undefined)), draft.spoils),
    };
  }

  /** What the steward reads at the path, live or in the trash. */
  async #versionOf(path: string): Promise<string> {
    const { status, body } = await this.target.api.ask('GET', path.replace(/\/(recover|replace)$/, ''));
    const [entity] = status === 200 ? (Object.values(body) as Array<{ version?: string }>) : [];
    return entity?.version ?? '1';
  }
}

/** Whether a caller has been logged out, or the admin was deleted: it would hear nothing else from now on. */
function isOut(caller: Caller, { status, text }: Got): boolean {
  if (status === 401) return caller !== 'nobody' && /"code":31\b|TokenInvalid/.test(text);
  return status === 403 && caller === 'admin' && /"code":21\b|ForbiddenError/.test(text);
}

/** As it is in JSON, between quotes. */
const inJson = (text: string) => JSON.stringify(text).slice(1, -1);

/** As encodeURIComponent; a lone surrogate becomes the character that stands for it. */
function encodeText(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

/** What repeats itself is counted. */
function brief(text: string): string {
  return text
    .replace(/(.{1,12}?)\1{30,}/gs, (all, unit: string) => `${unit}×${all.length / unit.length}`)
    .slice(0, shown);
}
