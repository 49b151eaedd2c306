/** Boots the whole service on a temporary directory and speaks to it as clients do: real HTTP, real MQTT. */
import type { IClientOptions, MqttClient } from 'mqtt';
import type { Test } from 'tap';
import type { Clock } from '../../src/core/clock.ts';
import { readConfig } from '../../src/core/config.ts';
import { openLog } from '../../src/core/log.ts';
import { Passwords } from '../../src/identity/secrets/passwords.ts';
import type { Mail, Sms } from '../../src/operations/emails/mail.ts';
import { type Server, startServer } from '../../src/process/server.ts';
import { createAccount } from '../../src/registry/accounts.ts';
import type { Body, Created, Made, Ok } from './answers.ts';
import { Contract } from './contract.ts';
import { temporaryDirectory } from './directory.ts';
import { request } from './http.ts';
import type { OpenApi } from './openapi.ts';
import { SecretWatch } from './secrets.ts';
import { copyDatabases, copyKeys, copySchema, keepTemplate, keptDocument } from './template.ts';
import { patience, soon } from './until.ts';

export type { Anything, Entity, Failure, List, Made, Point } from './answers.ts';

export interface Answer<B = Body<string, string>> {
  status: number;
  headers: Headers;
  body: B;
  text: string;
}

export interface Request {
  body?: unknown;
  headers?: Record<string, string>;
  /** The caller's token; the admin's when absent, none when null. */
  token?: string | null;
}

export interface Options {
  env?: Record<string, string>;
  clock?: Clock;
  mail?: Mail;
  sms?: Sms;
  /** Bytes that the disk has free. */
  freeOnDisk?: () => Promise<number>;
  /** Hashes of passwords take as long as in the product; otherwise a thousandth. */
  slowHashes?: true;
  /** Lines the service logs, for tests that read them. */
  logLines?: string[];
  directory?: string;
}

export type Login = Ok<'POST', '/api/v1/auth/login-user'>;
/** An end-user who can log in. */
export interface Person {
  endUser: Made<'endUser'>;
  email: string;
  password: string;
  token: string;
}

export const adminEmail = 'admin@example.com';
export const adminPassword = 'correct horse battery';
let serial = 0;

/** The contract of the services of this process, by header prefix: nothing else changes the document. */
const contracts = new Map<string, Contract>();

/** With it every service is one of two cells behind HAProxy: `npm run test:cells`. */
const isBehindProxy = process.env.TEST_CELLS === '1';

/** Options of a test that cannot say anything through HAProxy, with the reason. */
export const unlessBehindProxy = (reason: string) => (isBehindProxy ? { skip: `behind HAProxy: ${reason}` } : {});

/** A running service with its first account; it closes with the test. */
export async function startService(t: Test, options: Options = {}): Promise<Service> {
  if (!isBehindProxy || options.env?.SLIPWAY_SLOTS || options.directory) return startDirectly(t, options);
  const { behindProxy, cellOfTests } = await import('./cells.ts');
  return behindProxy(t, await startDirectly(t, { ...options, env: { ...cellOfTests, ...options.env } }));
}

/** The same, at its own ports. */
async function startDirectly(t: Test, options: Options): Promise<Service> {
  const directory = options.directory ?? temporaryDirectory(t);
  const config = readConfig(
    {
      SLIPWAY_DATA_DIR: directory,
      SLIPWAY_HTTP_PORT: '0',
      SLIPWAY_MQTT_PORT: '0',
      SLIPWAY_MQTTS_PORT: '0',
      SLIPWAY_ADMIN_EMAIL: adminEmail,
      SLIPWAY_ADMIN_PASSWORD: adminPassword,
      SLIPWAY_LOG_LEVEL: 'trace',
      // Names of addresses are asked for where nobody answers: what a test sees does not depend on its network.
      SLIPWAY_DNS_SERVERS: '127.0.0.1:9',
      ...options.env,
    },
    directory,
  );
  const usual = isUsual(options);
  copyKeys(directory);
  if (usual) copyDatabases(directory);
  else if (!options.directory) await copySchema(directory);
  const secrets = new SecretWatch();
  secrets.add(config.firstAccount.adminPassword);
  const write = (line: string) => {
    options.logLines?.push(line);
    secrets.write(line);
  };
  const log = openLog('trace', { write });
  const { clock, mail, sms, freeOnDisk } = options;
  const passwords = new Passwords(options.slowHashes ? undefined : { memoryCost: 8, timeCost: 1 });
  const overrides = {
    ...(clock && { clock }),
    ...(mail && { mail }),
    ...(sms && { sms }),
    ...(freeOnDisk && { freeOnDisk }),
    passwords,
    log,
  };
  const server = await startServer(config, overrides);
  if (usual) keepTemplate(directory);
  const service = new Service(server, directory, secrets);
  t.teardown(async () => {
    await service.close();
    secrets.check();
  });
  await service.login();
  return service;
}

/** Whether its first account is as everybody's: a clock of its own dates it otherwise, and a given directory has its own. */
function isUsual({ clock, directory, env = {} }: Options): boolean {
  return (
    !isBehindProxy && !clock && !directory && !Object.keys(env).some((name) => /^SLIPWAY_(ACCOUNT|ADMIN)_/.test(name))
  );
}

export class Service {
  accountId = '';
  /** The admin's token. */
  admin = '';
  #closed = false;
  readonly #clients: MqttClient[] = [];
  /** The same at its own ports, also where others go through HAProxy. */
  direct: Service = this;

  readonly server: Server;
  readonly directory: string;
  readonly secrets: SecretWatch;

  constructor(server: Server, directory: string, secrets: SecretWatch) {
    this.server = server;
    this.directory = directory;
    this.secrets = secrets;
  }

  /** The roots of topics, as the settings have them. */
  get topicRoot(): string {
    return this.server.ctx.config.topicRoot;
  }

  get controlRoot(): string {
    return this.server.ctx.config.controlRoot;
  }

  /** The port with TLS, of a service that has a certificate. */
  get mqttsPort(): number {
    return this.server.ctx.broker.addresses.mqtts ?? 0;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const client of this.#clients) client.end(true);
    await this.server.close();
  }

  /** Logs the first admin in. */
  async login(): Promise<void> {
    const accounts = await this.server.ctx.registry.query
      .selectFrom('accounts')
      .select('id')
      .orderBy('created')
      .execute();
    this.accountId = accounts[0]?.id ?? '';
    this.admin = (await this.loginAs(adminEmail, adminPassword)).jwt;
  }

  /** A token and a CSRF token for an email and a password. */
  async loginAs(emailAddress: string, password: string, accountId = this.accountId): Promise<Login> {
    const body = { emailAddress, password, accountId };
    const answer = await this.http('POST', '/api/v1/auth/login-user', { body, token: null });
    if (answer.status !== 200) throw new Error(`login answered ${answer.status}: ${answer.text}`);
    return answer.body;
  }

  /**
   * One request; a body that is no text is sent as JSON. As clients do, it renews the admin's session and asks again if the
   * clock has moved so far that the token needs it.
   */
  async http<const M extends string, const P extends string>(
    method: M,
    path: P,
    request: Request = {},
  ): Promise<Answer<Body<M, P>>> {
    const answer = await this.#ask(method, path, request);
    const { token = this.admin } = request;
    if (answer.status !== 401 || token !== this.admin || !(await this.#renew())) return answer;
    return this.#ask(method, path, request);
  }

  async #renew(): Promise<boolean> {
    const { status } = await this.#ask('POST', '/api/v1/sessions/renew-session', {});
    return status === 200;
  }

  async #ask<const M extends string, const P extends string>(
    method: M,
    path: P,
    { body, headers = {}, token = this.admin }: Request,
  ): Promise<Answer<Body<M, P>>> {
    const got = await request(this.server.url + path, {
      method,
      headers: {
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      body: body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
    });
    const isJson = got.named['content-type']?.startsWith('application/json');
    const answer = {
      status: got.status,
      get headers() {
        return got.headers;
      },
      body: (isJson ? JSON.parse(got.text) : undefined) as Body<M, P>,
      text: got.text,
    };
    if (!Buffer.isBuffer(body)) this.secrets.look(body);
    this.secrets.look(answer.body);
    for (const secret of [token, got.named['platform-access-token']]) this.secrets.add(String(secret ?? ''));
    if (isJson) this.#contract().check(method, path, answer.status, answer.body);
    return answer;
  }

  #contract(): Contract {
    const { app } = this.server;
    const known = contracts.get(app.headerPrefix);
    if (known) return known;
    const contract = new Contract(keptDocument(app.headerPrefix, () => app.swagger()) as OpenApi);
    contracts.set(app.headerPrefix, contract);
    return contract;
  }

  /** As http, and it must answer 200; gives the body. */
  async ok<const M extends string, const P extends string>(
    method: M,
    path: P,
    request: Request = {},
  ): Promise<Ok<M, P>> {
    const answer = await this.http(method, path, request);
    if (answer.status !== 200) throw new Error(`${method} ${path} answered ${answer.status}: ${answer.text}`);
    return answer.body as Ok<M, P>;
  }

  // Builders make what a test does not name.

  /** Another account, with the token and the login of its admin. */
  async account(
    email = `${this.unique('admin').replace(' ', '')}@example.com`,
    password = 'a long admin secret',
    name = 'Other',
  ): Promise<{ accountId: string; admin: string; email: string; password: string }> {
    const { accountId } = await createAccount(this.server.ctx, {
      name,
      adminEmail: email,
      adminPassword: password,
    });
    const admin = (await this.loginAs(email, password, accountId)).jwt;
    return { accountId, admin, email, password };
  }

  /** The same service for an admin of a new account; its `close` ends the clients alone. */
  async inNewAccount(): Promise<Service> {
    const account = await this.account(adminEmail, adminPassword);
    const own = this.#seenFrom(account);
    if (this.direct !== this) own.direct = this.direct.#seenFrom(account);
    return own;
  }

  #seenFrom({ accountId, admin }: { accountId: string; admin: string }): Service {
    const server: Server = Object.create(this.server, { close: { value: async () => {} } });
    const own = new Service(server, this.directory, this.secrets);
    own.accountId = accountId;
    own.admin = admin;
    return own;
  }

  /** Creates an entity through the API; `wrapper` is its key in the answer. */
  async create<const P extends string, const W extends string>(
    path: P,
    wrapper: W,
    body: object,
    token = this.admin,
  ): Promise<Created<P, W>> {
    const request = { body: { accountId: this.accountId, ...body }, token };
    const answer = (await this.ok('POST', `/api/v1${path}`, request)) as Record<W, Created<P, W>>;
    return answer[wrapper];
  }

  /** A device template with channels: a name alone is a `timeSeries` channel, `{name, persistenceType}` says more. */
  async template({
    channels = [],
    ...body
  }: {
    channels?: Array<string | object>;
    [property: string]: unknown;
  } = {}): Promise<Made<'deviceTemplate'>> {
    const template = await this.create('/devices/templates', 'deviceTemplate', {
      name: this.unique('Template'),
      ...body,
    });
    for (const channel of channels) await this.channel(template.id, channel);
    return this.ok('GET', `/api/v1/devices/templates/${template.id}`).then((answer) => answer.deviceTemplate);
  }

  channel(entityId: string, channel: string | object): Promise<Made<'channelTemplate'>> {
    const body = typeof channel === 'string' ? { name: channel, persistenceType: 'timeSeries' } : channel;
    return this.create('/channels/templates', 'channelTemplate', { entityId, entityType: 'deviceTemplate', ...body });
  }

  organization(body: object = {}): Promise<Made<'organization'>> {
    return this.create('/organizations', 'organization', { name: this.unique('Organization'), ...body });
  }

  /** An end-user in an organization, logged in: the entity, its email and password, its token. */
  async endUser(organizationId: string, body: object = {}): Promise<Person> {
    const email = `${this.unique('user').replace(' ', '')}@example.com`;
    // Not the digits in a row: a password may not have the same character four times in a row, as 1111 does.
    const password = `a long enough secret ${[...String(serial)].join('-')}`;
    const endUser = await this.create('/end-users', 'endUser', {
      organizationId,
      createIdmUser: true,
      idmUserEmail: email,
      idmUserPassword: password,
      ...body,
    });
    return { endUser, email, password, token: (await this.loginAs(email, password)).jwt };
  }

  /** A device with its credential. */
  async device(body: object = {}): Promise<{ device: Made<'device'>; secret: string }> {
    const device = await this.create('/devices', 'device', { serialNumber: this.unique('SN'), ...body });
    return { device, secret: await this.credential(device.id) };
  }

  async credential(deviceId: string): Promise<string> {
    const body = { entityId: deviceId, entityType: 'device' };
    return (await this.create('/access/mqtt-credentials', 'mqttCredential', body)).secret;
  }

  topic(deviceId: string, channel: string): string {
    return `${this.topicRoot}/${this.accountId}/d/${deviceId}/${channel}`;
  }

  /** A connected MQTT client of a device (`deviceId`, `secret`) or of a user (`jwt`); it ends with the service. */
  async connect(
    who: { deviceId: string; secret: string } | { jwt: string },
    options: IClientOptions = {},
  ): Promise<MqttClient> {
    const [username, password] = 'jwt' in who ? ['Auth:JWT', who.jwt] : [who.deviceId, who.secret];
    this.secrets.add(password);
    // Loaded by those who connect: most tests of the API do not, and it is as large as the broker.
    const { default: mqtt } = await import('mqtt');
    const how = { username, password, reconnectPeriod: 0, connectTimeout: patience * 1000, ...options };
    // Without retries it rejects when the connection ends before CONNACK; with them it would wait for another one.
    const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${this.server.mqttPort}`, how, how.reconnectPeriod > 0);
    this.#clients.push(client);
    return client;
  }

  /** Where MQTT over WebSocket is. HAProxy has to be told the account, as no CONNECT has come when it decides. */
  webSocket(path = '/mqtt'): string {
    const url = this.server.url.replace('http', 'ws') + path;
    return this.direct === this ? url : `${url}${path.includes('?') ? '&' : '?'}accountId=${this.accountId}`;
  }

  unique(what: string): string {
    serial += 1;
    return `${what} ${serial}`;
  }
}

/** What a search has found. @throws Error when it has found nothing. */
export function present<T>(found: T | undefined): T {
  if (found === undefined) throw new Error('nothing was found');
  return found;
}

/** The value of the only property of an answer. Its name depends on the kind of entity. */
export function wrapped<T>(body: object): T {
  return Object.values(body)[0];
}

/** What a JSON Web Token says. */
export function claimsOf(jwt: string): { id: string; userId: string; accountId: string; [claim: string]: unknown } {
  return JSON.parse(Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString());
}

/** When a client's connection has ended. */
export function closed(client: MqttClient): Promise<void> {
  return soon('the end of a connection', new Promise((resolve) => client.once('close', () => resolve())));
}

/** The next message of a client that `matches`; it must have been subscribed before. */
export function nextMessage(
  client: MqttClient,
  matches: (topic: string, payload: Buffer) => boolean = () => true,
): Promise<{ topic: string; payload: Buffer; text: string }> {
  const heard: string[] = [];
  const arrived = new Promise<{ topic: string; payload: Buffer; text: string }>((resolve) => {
    const listen = (topic: string, payload: Buffer) => {
      heard.push(topic);
      if (!matches(topic, payload)) return;
      client.off('message', listen);
      resolve({ topic, payload, text: payload.toString() });
    };
    client.on('message', listen);
  });
  return soon(`a message that is right by ${matches}`, arrived, () => heard);
}
