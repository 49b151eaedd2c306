/** `slipway enroll`: plays a device that enrolls, with every proof, over HTTP or MQTT. Also a client to test groups with. */
import { createHmac } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { loadDeviceConfig } from '../src/core/config.ts';
import { lineOf } from '../src/core/errors.ts';
import { normalizeSerialNumber } from '../src/core/formats/serial-numbers.ts';
import { reasonOf } from './line/client.ts';
import { Ending, exitCodes, refused, trouble, UsageError } from './usage.ts';

interface EnrollFlags {
  url: string | undefined;
  mqtt: string | undefined;
  group: string;
  serial: string | undefined;
  secret: string | undefined;
  groupKey: string | undefined;
  cert: string | undefined;
  key: string | undefined;
  csr: string | undefined;
  previousSecret: string | undefined;
  firmwareVersion: string | undefined;
  field: string[];
  cbor: boolean;
  ca: string | undefined;
  out: string | undefined;
}

/** What a device sends, and how it proves itself. */
interface Device {
  group: string;
  username: string;
  password: string | undefined;
  tls: { ca?: string[]; cert?: string; key?: string };
  request: Record<string, unknown>;
}

interface Answer {
  device: { id: string; serialNumber: string };
  credential: { secret?: string; certificate?: string; chain?: string };
}

const patience = 60_000;
const privateFile = { mode: 0o600 } as const;

/** Prints the answer, or writes it to files. @throws Ending 1 for a refusal, 4 for a wrong proof, 3 without an answer. */
export async function enroll(flags: EnrollFlags): Promise<void> {
  const config = loadDeviceConfig(flags);
  const device = readDevice(flags, config.secret);
  const answer =
    flags.mqtt === undefined
      ? await overHttp(config.url, device)
      : await overMqtt(flags.mqtt, config.topicRoot, device, flags.cbor);
  if (flags.out === undefined) process.stdout.write(`${JSON.stringify(answer, null, 2)}\n`);
  else process.stdout.write(`${writeFiles(flags.out, answer)}\n`);
}

/** @throws UsageError for flags that do not go together. */
function readDevice(flags: EnrollFlags, secret: string | undefined): Device {
  const { group, groupKey, csr, previousSecret, firmwareVersion, field, mqtt, cbor } = flags;
  const serial = flags.serial === undefined ? undefined : normalizeSerialNumber(flags.serial);
  const proofs = [secret, groupKey, flags.cert].filter((one) => one !== undefined);
  if (proofs.length === 0) throw new UsageError('One of --secret, --group-key and --cert is needed.');
  if (groupKey !== undefined && serial === undefined) throw new UsageError('--group-key needs --serial.');
  if ((flags.cert === undefined) !== (flags.key === undefined)) throw new UsageError('--cert and --key go together.');
  if (cbor && mqtt === undefined) throw new UsageError('--cbor is for --mqtt.');
  const derived =
    groupKey === undefined
      ? undefined
      : createHmac('sha256', groupKey)
          .update(serial ?? '')
          .digest('base64url');
  const fields = Object.fromEntries(field.map(pairOf));
  return {
    group,
    username: derived === undefined ? group : `${group}/${serial}`,
    password: secret ?? derived,
    tls: {
      ...(flags.cert !== undefined && { cert: read(flags.cert) }),
      ...(flags.key !== undefined && { key: read(flags.key) }),
      ...(flags.ca !== undefined && { ca: [...rootCertificates, read(flags.ca)] }),
    },
    request: {
      ...(serial !== undefined && { serialNumber: serial }),
      ...(csr !== undefined && { csr: read(csr) }),
      ...(previousSecret !== undefined && { previousSecret }),
      ...(firmwareVersion !== undefined && { firmwareVersion }),
      ...(field.length > 0 && { fields }),
    },
  };
}

function pairOf(given: string): [name: string, value: string] {
  const at = given.indexOf('=');
  if (at < 1) throw new UsageError(`--field ${given} must be NAME=VALUE.`);
  return [given.slice(0, at), given.slice(at + 1)];
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

function overHttp(url: string, { group, username, password, tls, request }: Device): Promise<Answer> {
  const body = JSON.stringify({ ...(password === undefined && { groupId: group }), ...request });
  const headers = {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...(password !== undefined && {
      authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`,
    }),
  };
  const send = url.startsWith('https:') ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const asked = send(
      new URL(`${url}/api/v1/enroll`),
      { method: 'POST', headers, timeout: patience, ...tls },
      (answer) => {
        const parts: Buffer[] = [];
        answer.on('data', (part: Buffer) => parts.push(part));
        answer.on('error', (error) => reject(trouble(`The server did not answer: ${error.message}`)));
        answer.on('end', () => {
          const text = Buffer.concat(parts).toString();
          const status = answer.statusCode ?? 0;
          if (status === 200) resolve(JSON.parse(text) as Answer);
          else reject(refusalOf(status, reasonOf({ status, headers: answer.headers, text })));
        });
      },
    );
    asked.on('timeout', () => asked.destroy(new Error('no answer')));
    asked.on('error', (error) => reject(trouble(`The server cannot be reached: ${error.message}`)));
    asked.end(body);
  });
}

function refusalOf(status: number, sentence: string): Error {
  if (status === 401) return refused(`The proof is wrong: ${sentence}`);
  if (status >= 400 && status < 429) return new Ending(exitCodes.failed, `The enrollment was refused: ${sentence}`);
  return trouble(`The server cannot do it now: ${sentence}`);
}

async function overMqtt(
  url: string,
  root: string,
  { username, password, tls, request }: Device,
  isCbor: boolean,
): Promise<Answer> {
  const { default: mqtt } = await import('mqtt');
  const { decodeCbor, encodeCbor } = await import('../src/firmware/delivery/cbor.ts');
  const options = {
    ...tls,
    username: `enroll/${username}`,
    ...(password !== undefined && { password }),
    ...{ reconnectPeriod: 0, connectTimeout: patience },
  };
  const client = await mqtt.connectAsync(url, options, false).catch((error: Error & { code?: unknown }) => {
    if ([4, 5, 0x86, 0x87].includes(Number(error.code))) throw refused(`The proof is wrong: ${error.message}`);
    throw trouble(`The broker cannot be reached: ${error.message}`);
  });
  try {
    const answered = new Promise<{ topic: string; payload: Buffer }>((resolve, reject) => {
      client.on('message', (topic, payload) => resolve({ topic, payload }));
      client.on('error', reject);
      client.on('close', () => reject(trouble('The broker has ended the connection without an answer.')));
    });
    await client.subscribeAsync(`${root}/enroll/+`, { qos: 1 });
    client.publish(`${root}/enroll`, isCbor ? encodeCbor(request) : JSON.stringify(request), { qos: 1 });
    const { topic, payload } = await answered;
    const answer = isCbor ? decodeCbor(payload) : JSON.parse(payload.toString());
    if (topic.endsWith('/accepted')) return answer as unknown as Answer;
    throw new Ending(
      exitCodes.failed,
      `The enrollment was refused: ${lineOf({ message: '', details: [], ...answer?.error })}`,
    );
  } finally {
    client.end(true);
  }
}

/** The directory with what the device keeps; who else is on the machine reads none of it. */
function writeFiles(out: string, answer: Answer): string {
  mkdirSync(out, { recursive: true, mode: 0o700 });
  const { certificate, chain } = answer.credential;
  writeFileSync(join(out, 'device.json'), `${JSON.stringify(answer, null, 2)}\n`, privateFile);
  if (certificate !== undefined) writeFileSync(join(out, 'device.crt'), `${certificate}${chain ?? ''}`, privateFile);
  return out;
}
