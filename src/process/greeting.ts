/** Messages on standard output: the address of the console first, the first account, the rest when the server listens. */
import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { version } from '../../db/files/version.ts';
import type { Config } from '../core/config.ts';
import type { CreatedAccount } from '../registry/accounts.ts';
import { mosquittoLine, npxLine } from '../registry/devices/connect-lines.ts';
import { addressAt, type Server } from './server.ts';

/** Standard output of a start. Its first line is the address of the console, and what is said before that is known waits. */
export class FirstWords {
  readonly #print: (text: string) => void;
  readonly #waiting: string[] = [];
  #hasBegun = false;

  constructor(print: (text: string) => void) {
    this.#print = print;
  }

  /** The port is known: at once, unless the system chooses it. */
  printConsole(config: Pick<Config, 'host' | 'tls' | 'publicUrl'>, port: number): void {
    if (this.#hasBegun) return;
    this.#print(`Console ${config.publicUrl ?? here(addressAt(config, port))}/console/`);
    this.printWaiting();
  }

  printLater(text: string): void {
    if (this.#hasBegun) this.#print(text);
    else this.#waiting.push(text);
  }

  /** Says what waits, with an address or without: the start may have failed. */
  printWaiting(): void {
    this.#hasBegun = true;
    for (const text of this.#waiting.splice(0)) this.#print(text);
  }
}

/** Where it listens on every address, this machine is the one to name. */
function here(url: string): string {
  return url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
}

/** The account that the first start has created. A generated password is shown only here. */
export function introduction({ firstAccount }: Pick<Config, 'firstAccount'>, account: CreatedAccount): string {
  const generated = isGenerated(firstAccount);
  return [
    '',
    generated
      ? 'This is the first start. It has created an account. The password is shown only now:'
      : 'This is the first start. It has created an account with the password that you have set:',
    '',
    `  account   ${account.accountId}`,
    `  email     ${account.adminEmail}`,
    ...(generated ? [`  password  ${account.adminPassword}`] : []),
  ].join('\n');
}

function isGenerated({ adminPassword, adminPasswordFile }: Config['firstAccount']): boolean {
  return adminPassword === undefined && adminPasswordFile === undefined;
}

/** The addresses; on the very first start also three commands to paste. */
export function greeting({ url: listening, mqttPort, ctx, firstAccount }: Server): string {
  const { config, broker, versionBefore } = ctx;
  const host = { '0.0.0.0': '127.0.0.1', '::': '::1' }[config.host] ?? config.host;
  const url = here(listening);
  const lines = [''];
  if (versionBefore !== undefined) lines.push(`The data was of Slipway ${versionBefore}, and is of ${version} now.`);
  lines.push(`Slipway is listening.  API ${url}/api/v1   documentation ${url}/docs`);
  const { mqtts } = broker.addresses;
  if (mqtts !== undefined) lines.push(`MQTT over TLS ${host}:${mqtts}`);
  lines.push(`MQTT ${host}:${mqttPort}   MQTT over WebSocket ${url.replace('http', 'ws')}/mqtt`);
  lines.push(reachFrom(config.host, mqtts ?? mqttPort));
  if (!config.smtpUrl) lines.push('No mail server is set: emails are kept in outbox.ndjson in the data directory.');
  if (config.publicUrl === undefined)
    lines.push(
      'SLIPWAY_PUBLIC_URL is not set: emails have no links, and ask people to paste lines at a page of this service.',
    );
  if (!firstAccount) return `${lines.join('\n')}\n`;

  const { accountId, adminEmail, adminPassword } = firstAccount;
  const generated = isGenerated(config.firstAccount);
  const { adminPasswordFile: file } = config.firstAccount;
  const given = file === undefined ? '$SLIPWAY_ADMIN_PASSWORD' : `$(cat ${file})`;
  const secret = generated ? adminPassword : `'"${given}"'`;
  const login = JSON.stringify({ accountId, emailAddress: adminEmail, password: '' }).replace('""', `"${secret}"`);
  const name = config.tls ? nameIn(config.tls.cert, host) : host;
  const certified = config.tls ? url.replace(`//${host}:`, `//${name}:`) : url;
  const message = {
    host: name,
    port: mqtts ?? mqttPort,
    tls: mqtts !== undefined,
    url: certified,
    clientId: 'my-device',
    username: '$DEVICE',
    secret: '$SECRET',
    topic: '$TOPIC',
    payload: ',temperature,21.5,',
  };
  const api = `${certified}/api/v1`;
  const json = `-H 'Content-Type: application/json'`;
  const auth = `-H "Authorization: Bearer $TOKEN" ${json}`;
  const pick = (path: string) => `node -pe 'JSON.parse(fs.readFileSync(0))${path}'`;
  lines.push(
    '',
    `Paste these in another terminal${generated || file !== undefined ? '' : ', where SLIPWAY_ADMIN_PASSWORD is set too'}.`,
    '',
    ...(config.tls ? trusting : []),
    '1. Log in:',
    '',
    `ACCOUNT=${accountId}`,
    `TOKEN=$(curl -sS ${api}/auth/login-user ${json} -d '${login}' | ${pick('.jwt')})`,
    '',
    '2. Make a channel whose data is kept, a device, and its credential:',
    '',
    `TEMPLATE=$(curl -sS "${api}/devices/templates?accountId=$ACCOUNT&default=true" ${auth} | ${pick('.deviceTemplates.results[0].id')})`,
    `curl -sS ${api}/channels/templates ${auth} -d '{"accountId":"'$ACCOUNT'","entityId":"'$TEMPLATE'","entityType":"deviceTemplate","name":"readings","persistenceType":"timeSeries"}'; echo`,
    `DEVICE=$(curl -sS ${api}/devices ${auth} -d '{"accountId":"'$ACCOUNT'","serialNumber":"SN-0001"}' | ${pick('.device.id')})`,
    `SECRET=$(curl -sS ${api}/access/mqtt-credentials ${auth} -d '{"accountId":"'$ACCOUNT'","entityId":"'$DEVICE'","entityType":"device"}' | ${pick('.mqttCredential.secret')})`,
    '',
    '3. Publish, with either of these, and read it back:',
    '',
    `TOPIC=${config.topicRoot}/$ACCOUNT/d/$DEVICE/readings`,
    mosquittoLine(message),
    npxLine(message),
    `curl -sS ${certified}/api/v4/data/$TOPIC ${auth}; echo`,
  );
  return `${lines.join('\n')}\n`;
}

/** How a board on the local network gets in. */
function reachFrom(host: string, port: number): string {
  const isLocal = host === 'localhost' || host === '::1' || host.startsWith('127.');
  return isLocal
    ? 'Only programs on this machine can connect. For boards on your network, start with SLIPWAY_HOST=0.0.0.0.'
    : `Boards on your network connect to the address of this machine, port ${port}.`;
}

/** Read by curl, and by whatever runs on Node. */
const trusting = [
  'Where a CA of your own has signed the certificate of this server, name the file of that CA first:',
  '',
  'export CURL_CA_BUNDLE=ca.pem NODE_EXTRA_CA_CERTS=ca.pem',
  '',
];

/** A host that the certificate is for: this machine as it is asked for here, or the first name that is in it. */
function nameIn(pem: string, host: string): string {
  const certificate = new X509Certificate(pem);
  if (isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host)) return host;
  return /\bDNS:([a-z0-9.-]+)/i.exec(certificate.subjectAltName ?? '')?.[1] ?? host;
}
