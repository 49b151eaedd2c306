/** A directory of units that is being filled: what its commands share. */
import { execFile } from 'node:child_process';
import { createHash, createPrivateKey, randomUUID, X509Certificate } from 'node:crypto';
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type PemBlock, pemBlocks, pemCertificates } from '../../src/core/formats/pem.ts';
import { isLoopback, isUnspecified } from '../../src/core/network/own-machine.ts';
import { type FlashFormat, flashFormats, type Unit } from '../../src/factory/provisioning/unit.ts';
import { type FlashExtra, flashFile } from '../../src/factory/results/formats.ts';
import { Ending, refused, trouble, UsageError } from '../usage.ts';
import type { Client } from './client.ts';
import type { Chunk, ChunkState, DoneUnit, FailedUnit, Journal, Settings, UnitRow } from './journal.ts';
import { type File, fileNameOf, type LabelForm, labelForms, writeFiles } from './unit-files.ts';

/** Units whose files are written together: less than a line of progress takes. */
const unitsAtOnce = 250;

export interface Line {
  client: Client;
  journal: Journal;
  format: FlashFormat;
  labels: LabelForm;
  /** Instead of what the server says. */
  broker: string | undefined;
  addresses: Addresses;
  extra: FlashExtra;
  /** A program that makes a certificate for a unit. */
  certify: string | undefined;
  /** A digest of the flags for broker, CA and template: what is done stays as they were. */
  madeWith: string;
  /** Jobs of a token that is gone are ended with new secrets for their units. */
  takesOver?: boolean;
  printLine(sentence: string): void;
  /** Called with the number of units whose files are on disk, while the rest of their chunk is written. */
  written?(units: number): void;
}

/** Where units connect and where they are claimed, as the server says. */
export interface Addresses {
  broker: string;
  claimUrl: string;
}

/** The flags about the files to write. */
export interface FileOptions {
  format: string | undefined;
  labels: string | undefined;
  broker: string | undefined;
  ca: string | undefined;
  certify: string | undefined;
  template: string | undefined;
}

/** How the files are made. */
export type FileChoice = Pick<Line, 'format' | 'labels' | 'broker' | 'extra' | 'certify' | 'madeWith'>;

/** @throws UsageError for a form that there is not, or a CA that cannot be read. */
export function readFileOptions(options: FileOptions): FileChoice {
  const format = flashFormats.find((one) => one === options.format);
  if (!format) throw new UsageError(`--format must be one of ${flashFormats.join(', ')}.`);
  const labels = labelForms.find((one) => one === (options.labels ?? 'none'));
  if (!labels) throw new UsageError(`--labels must be one of ${labelForms.join(', ')}.`);
  const { broker, certify, template } = options;
  demandProgram(certify);
  const isBroker = broker === undefined || (URL.canParse(broker) && /^mqtts?:\/\/[^/]+$/.test(broker));
  if (!isBroker) throw new UsageError('--broker must be mqtt://host:port or mqtts://host:port.');
  const ca = readCaFile(options.ca);
  const flags = JSON.stringify([broker, ca, template]);
  const madeWith = createHash('sha256').update(flags).digest('hex').slice(0, 12);
  return { format, labels, broker, extra: { ca }, certify, madeWith };
}

/** A path can be looked at before a unit is made; a mere name is found, or not, when it is called. @throws UsageError. */
function demandProgram(certify: string | undefined): void {
  if (certify === undefined || !certify.includes('/')) return;
  try {
    accessSync(certify, constants.X_OK);
  } catch (error) {
    throw new UsageError(`--certify ${certify} cannot be called: ${(error as Error).message}`);
  }
}

/** @throws UsageError when there is no PEM text in the file. */
export function readCaFile(path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  let text = '';
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${path} cannot be read: ${(error as Error).message}`);
  }
  if (pemCertificates(text).length === 0) throw new UsageError(`${path} is not a PEM file with a certificate.`);
  return text;
}

/**
 * Asked for before anything is made. @throws as Client.ok; UsageError where units would be told to connect to their own
 * machine, unless `broker` is the address that they get.
 */
export async function readAddresses(client: Client, broker: string | undefined): Promise<{ addresses: Addresses }> {
  const { provisioning } = await client.ok<{ provisioning: Addresses }>('GET', '/provisioning/addresses');
  const { hostname, protocol } = new URL(provisioning.broker);
  if (broker === undefined && (isLoopback(hostname) || isUnspecified(hostname)))
    throw new UsageError(
      `The server's broker address is ${provisioning.broker}: no other machine can connect there. ` +
        `Give --broker ${protocol}//host:port, which may be this machine, or set SLIPWAY_MQTT_PUBLIC_URL on the server.`,
    );
  return { addresses: provisioning };
}

/** Files of one kind, of one account, in one directory. @throws UsageError when it was begun otherwise. */
export async function settleJournal(journal: Journal, settings: Settings): Promise<void> {
  const before = journal.settings;
  const other = (['accountId', 'format', 'labels'] as const).find((name) => before?.[name] !== settings[name]);
  if (other === undefined) return;
  if (before && journal.isUsed)
    throw new UsageError(`${journal.directory} was begun with ${other} ${before[other]}; take another directory.`);
  await journal.append({ type: 'settings', ...settings });
}

/** A template and an organization, each by id or by name. */
export interface NamedPlace {
  template?: string | undefined;
  organization?: string | undefined;
}

/** Flags that a refusal may be about. */
export function flagsOf({ template, organization }: NamedPlace): string {
  const flags = [template && `--template ${template}`, organization && `--organization ${organization}`].filter(
    Boolean,
  );
  return flags.length > 0 ? ` (${flags.join(', ')})` : '';
}

/** A new chunk, not in the journal yet. */
export function newKey({ caller }: Client): { key: string; time: string; caller: string } {
  return { key: randomUUID(), time: new Date().toISOString(), caller: caller.id };
}

/** Whether the server knows the key of a chunk for another token, and would do what it asks for once more. */
export function isOfAnother({ caller }: Client, chunk: Chunk): boolean {
  return chunk.caller !== undefined && chunk.caller !== caller.id;
}

/** Results are for the caller that began a chunk alone; who sees all devices can give its units new secrets. */
export function ofAnother(what: string, option: string): Error {
  const sentence = `${what} begun with another token. Run it again with that one; where it is gone`;
  return refused(`${sentence}, with ${option}the token of an admin or a back-end: its units get new secrets.`);
}

export function unitRow(serialNumber: string, fields: Record<string, string>): UnitRow {
  return { serialNumber, file: fileNameOf(serialNumber), fields };
}

/** Where the flash file of a unit is, below its directory. */
export function flashPath({ format }: Pick<Line, 'format'>, file: string): string {
  return `${file}.${{ 'esp-nvs-csv': 'csv', env: 'env', 'c-header': 'h', json: 'json' }[format]}`;
}

/** Where the label of a unit is, below its directory; nowhere where none was wanted, or an older journal does not say. */
export function labelPath({ labels }: Pick<Line, 'labels'>, { file, sheet }: DoneUnit): string | undefined {
  return labels === 'svg' || labels === 'png' ? join('labels', `${file}.${labels}`) : sheet;
}

/** The files of a unit that are not there any more. */
export function lostFiles(line: Pick<Line, 'format' | 'labels' | 'journal'>, unit: DoneUnit): string[] {
  const label = labelPath(line, unit);
  const paths = [flashPath(line, unit.file), ...(label === undefined ? [] : [label])];
  return paths.map((path) => join(line.journal.directory, path)).filter((path) => !existsSync(path));
}

/** Begins a unit that was done once more: its device gets a new secret and a new code, and its files are written again. */
export async function beginAgain(
  { client, journal }: Line,
  { serialNumber, deviceId, file }: DoneUnit,
): Promise<ChunkState> {
  const chunk: Chunk = { ...newKey(client), by: 'unit', rows: [{ serialNumber, file, fields: {}, deviceId }] };
  await journal.append({ type: 'chunk', ...chunk });
  return { ...chunk, state: 'begun' };
}

/**
 * Writes the files of units, and then into the journal that they are there. Only after this may the server forget them.
 * @throws Ending 3 when the disk takes them not; UsageError for a `--certify` that there is not.
 */
export async function deliver(line: Line, chunk: ChunkState, units: Unit[], failed: FailedUnit[]): Promise<void> {
  const rows = new Map(chunk.rows.map((row) => [row.serialNumber, row]));
  const named = units.flatMap((unit) => {
    const file = rows.get(unit.serialNumber)?.file;
    return file === undefined ? [] : [{ file, unit }];
  });
  if (named.length < units.length) throw trouble('The server answered with units that were not asked for.');
  const sheet = sheetPath(line, chunk);
  try {
    if (sheet !== undefined && named.length > 0)
      await writeFiles(line.journal.directory, [await sheetOf(sheet, named)]);
    for (let from = 0; from < named.length; from += unitsAtOnce) {
      const batch = named.slice(from, from + unitsAtOnce);
      const files: File[] = [];
      for (const { file, unit } of batch) files.push(await flashOf(line, file, unit));
      await writeFiles(line.journal.directory, [...files, ...(await labelsOf(line, batch))]);
      line.written?.(batch.length);
    }
  } catch (error) {
    if (error instanceof UsageError || error instanceof Ending) throw error;
    throw trouble(`The files in ${line.journal.directory} cannot be written: ${(error as Error).message}`);
  }
  const done = named.map(({ file, unit: { serialNumber, deviceId } }) => ({ serialNumber, deviceId, file, sheet }));
  await line.journal.append({ type: 'written', key: chunk.key, done, failed, madeWith: line.madeWith });
}

async function flashOf({ format, broker, extra, certify }: Line, file: string, unit: Unit): Promise<File> {
  const own = certify === undefined ? {} : await certificateOf(certify, unit);
  const { content } = flashFile(format, { ...unit, broker: broker ?? unit.broker }, { ...extra, ...own });
  return { path: flashPath({ format }, file), content };
}

/** The output of `certify` for a unit: its certificate, with the device id as subject, and its key. @throws Ending 3; UsageError. */
async function certificateOf(certify: string, { deviceId, serialNumber }: Unit): Promise<FlashExtra> {
  const called = promisify(execFile)(certify, [deviceId, serialNumber]);
  const { stdout } = await called.catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'EACCES')
      throw new UsageError(`--certify ${certify} cannot be called: ${error.message}`);
    throw trouble(`${certify} has failed for ${serialNumber}: ${error.message.trim()}`);
  });
  const blocks = pemBlocks(stdout);
  const isKey = ({ label }: PemBlock) => label.endsWith('PRIVATE KEY');
  const certificates = blocks.filter((block) => !isKey(block)).map(({ text }) => text);
  const privateKey = blocks.find(isKey)?.text;
  if (certificates.length === 0 || privateKey === undefined)
    throw trouble(`${certify} printed no certificate and key for ${serialNumber}.`);
  if (!isPair(certificates[0] ?? '', privateKey))
    throw trouble(`${certify} has printed a certificate and a key for ${serialNumber} that do not belong together.`);
  return { certificate: `${certificates.join('\n')}\n`, privateKey: `${privateKey}\n` };
}

/** A unit with any other key never gets through its handshake. */
function isPair(certificate: string, privateKey: string): boolean {
  try {
    return new X509Certificate(certificate).checkPrivateKey(createPrivateKey(privateKey));
  } catch {
    return false;
  }
}

/** The sheet for the labels of a chunk, where they are on sheets; one unit has a sheet of its own. */
export function sheetPath({ labels }: Pick<Line, 'labels'>, { by, rows, time, key }: Chunk): string | undefined {
  if (labels !== 'html') return undefined;
  return join(
    'labels',
    `${by === 'unit' ? rows[0]?.file : `sheet-${time.replace(/\D/g, '')}-${key.slice(0, 8)}`}.html`,
  );
}

/** A unit, and the name of its files. */
interface Named {
  file: string;
  unit: Unit;
}

async function sheetOf(path: string, named: readonly Named[]): Promise<File> {
  const { labelSheet } = await import('../../src/factory/results/labels.ts');
  const units = (async function* () {
    for (const { unit } of named) yield unit;
  })();
  let content = '';
  for await (const part of labelSheet(units)) content += part;
  return { path, content };
}

/** Labels that are files of their own. */
async function labelsOf({ labels }: Line, named: readonly Named[]): Promise<File[]> {
  if (labels !== 'svg' && labels !== 'png') return [];
  const { labelPng, labelSvg } = await import('../../src/factory/results/labels.ts');
  const files: File[] = [];
  for (const { file, unit } of named)
    files.push({
      path: `labels/${file}.${labels}`,
      content: labels === 'svg' ? labelSvg(unit) : labelPng(unit),
    });
  return files;
}
