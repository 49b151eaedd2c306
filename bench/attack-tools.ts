/** What attacks are made of: requests that go on and on, as an account at its limits or as a stranger. */
import { Agent, type ClientRequest, type IncomingMessage, request } from 'node:http';
import type { Equipped } from './equip.ts';

/** What an attack has at hand: an account with as much of everything as limits allow, and its admin's token. */
export interface Means {
  httpPort: number;
  mqttPort: number;
  /** Where the service has its files. */
  directory: string;
  accountId: string;
  token: string;
  admin: { email: string; password: string };
  devices: ReadonlyArray<Pick<Equipped, 'id' | 'secret' | 'root'>>;
  deviceTemplateId: string;
  organizationId: string;
  series: { from: string; to: string };
}

export interface Attack {
  shows: string;
  /** Settings of the service without which the attack would not meet the rule. */
  env?: Record<string, string>;
  /** Whether the victim logs in every second meanwhile: each login takes a hash, so it is not part of every attack. */
  victimLogsIn?: true;
  /** Goes on for ever; `begun` says that all is in place and harm is being done. */
  run(means: Means, begun: () => void): Promise<unknown>;
}

export interface AttackRequest {
  body?: object | string | Buffer;
  headers?: Record<string, string>;
  /** A number of 127.0.0.x to come from, other than the victim's. */
  from?: number;
  /** Without a token, as a stranger; or with a secret, as a device. */
  as?: 'admin' | 'stranger' | { id: string; secret: string };
  /** Whether the answer is left unread: the connection stays. */
  deaf?: boolean;
}

const agents = new Map<number, Agent>();

/** Asks, and resolves with the status when the answer has been read to its end; 0 when the connection broke. */
export function ask(means: Means, method: string, path: string, asked: AttackRequest = {}): Promise<number> {
  return new Promise((resolve) => {
    const asking = open(means, method, path, asked);
    asking.once('error', () => resolve(0));
    asking.once('response', (answer: IncomingMessage) => {
      answer.once('close', () => resolve(answer.statusCode ?? 0));
      if (!asked.deaf) answer.resume();
    });
    asking.end(bodyOf(asked));
  });
}

/** As ask, for what is needed to go on. @throws Error for any answer but 2xx. */
export async function demand<T>(means: Means, method: string, path: string, asked: AttackRequest = {}): Promise<T> {
  const asking = open(means, method, path, asked);
  asking.end(bodyOf(asked));
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    asking.once('response', resolve);
    asking.once('error', reject);
  });
  let text = '';
  for await (const chunk of answer.setEncoding('utf8')) text += chunk;
  if (Math.floor((answer.statusCode ?? 0) / 100) !== 2)
    throw new Error(`${method} ${path} answered ${answer.statusCode}: ${text.slice(0, 500)}`);
  return JSON.parse(text) as T;
}

/** Begins a request, whose body is the caller's to send. */
export function open(means: Means, method: string, path: string, asked: AttackRequest = {}): ClientRequest {
  const { httpPort: port, token } = means;
  const { from = 2, as = 'admin', headers } = asked;
  const agent = agents.get(from) ?? new Agent({ keepAlive: true, localAddress: `127.0.0.${from}` });
  agents.set(from, agent);
  const authorization =
    as === 'stranger'
      ? undefined
      : as === 'admin'
        ? `Bearer ${token}`
        : `Basic ${Buffer.from(`${as.id}:${as.secret}`).toString('base64')}`;
  const body = bodyOf(asked);
  return request({
    agent,
    host: '127.0.0.1',
    port,
    method,
    path: path.startsWith('/api/') || path.startsWith('//') ? path.replace(/^\/\//, '/') : `/api/v1${path}`,
    headers: {
      ...(authorization && { authorization }),
      ...(body !== undefined && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
      ...headers,
    },
  });
}

function bodyOf({ body }: AttackRequest): string | Buffer | undefined {
  return body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
}

/** Does the same again and again, so many at once; one that is over too soon waits a little. */
export async function again(count: number, work: (place: number, round: number) => Promise<unknown>): Promise<void> {
  const follow = async (place: number) => {
    for (let round = 0; ; round += 1) {
      const from = performance.now();
      await work(place, round);
      if (performance.now() - from < 1) await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  await Promise.all(Array.from({ length: count }, (_, place) => follow(place)));
}
