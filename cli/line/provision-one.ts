/** `slipway provision one`: one unit for one cycle of the line. It loads little, because it has 200 ms. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { normalizeSerialNumber, serialNumberFault } from '../../src/core/formats/serial-numbers.ts';
import { Ending, exitCodes, refused, trouble, UsageError } from '../usage.ts';
import { type Client, reasonOf } from './client.ts';
import { beginAgain, type FileOptions, flashPath, type Line, labelPath, lostFiles, readFileOptions } from './line.ts';
import { type Connection, printError } from './options.ts';
import { beginUnit, findDevice, placeOf, runUnit } from './single.ts';
import { withLine } from './work.ts';

interface UnitFlags extends Connection, FileOptions {
  serial: string;
  field: string[];
  organization: string | undefined;
  out: string;
  print: boolean;
  again: boolean;
}

const maxSerialLength = 255;

/** The values of flags, else those of the server. */
const noFields = ['serialNumber', 'accountId', 'template', 'organization', 'deviceTemplateId', 'organizationId'];

export async function provisionOne(flags: UnitFlags): Promise<void> {
  const serialNumber = readSerial(flags.serial);
  const files = readFileOptions(flags);
  const fields = readFields(flags.field);
  // It is there when the answers are.
  if (files.labels !== 'none') void import('../../src/factory/results/labels.ts');
  await withLine(flags, { out: flags.out, serialNumber, files, printLine: printError }, async (line) => {
    await makeUnit(line, flags, serialNumber, fields);
    printPlaces(line, flags, serialNumber);
  });
}

/** As the service keeps it. @throws UsageError for what no device can have. */
function readSerial(given: string): string {
  const serialNumber = normalizeSerialNumber(given);
  const fault = serialNumberFault(serialNumber);
  if (fault !== undefined) throw new UsageError(`--serial ${fault}.`);
  if (serialNumber.length > maxSerialLength)
    throw new UsageError(`--serial must be at most ${maxSerialLength} characters.`);
  if (serialNumber.includes('\ufffd')) throw new UsageError('--serial must be UTF-8.');
  return serialNumber;
}

/** @throws UsageError for what is not name=value. */
function readFields(given: string[]): Record<string, string> {
  return Object.fromEntries(
    given.map((one) => {
      const [, name, value] = /^([^=]+)=(.*)$/s.exec(one) ?? [];
      if (name === undefined || value === undefined) throw new UsageError(`--field must be name=value, not ${one}.`);
      if (noFields.includes(name)) throw new UsageError(`--field ${name}: this is given by a flag of its own.`);
      return [name, value];
    }),
  );
}

async function makeUnit(
  line: Line,
  flags: UnitFlags,
  serialNumber: string,
  fields: Record<string, string>,
): Promise<void> {
  const { client, journal } = line;
  const done = journal.done.get(serialNumber);
  const begun = journal.begun.find(({ by }) => by === 'unit' || !done);
  if (done && !begun && !flags.again) {
    const [lost] = lostFiles(line, done);
    if (lost === undefined) return;
    const sentence = `${serialNumber} was made, and ${lost} is not there any more; --again gives it a new secret and files.`;
    throw new Ending(exitCodes.failed, sentence);
  }
  if (begun?.by === 'job') throw trouble('The unit is part of a run that was stopped: run slipway provision again.');
  const failed = await runUnit(line, begun ?? (done ? await beginAgain(line, done) : await fresh()));
  for (const { reason } of failed) throw new Ending(exitCodes.failed, reason);

  async function fresh() {
    // Both at once; where both are refused, it is the place that is named, whichever answer comes first.
    const checked = demandFields(client, serialNumber, fields).then(
      () => undefined,
      (error: unknown) => ({ error }),
    );
    const place = await placeOf(client, flags);
    const refusal = await checked;
    if (refusal) throw refusal.error;
    const there = await findDevice(client, serialNumber, place.template);
    if (there) {
      const sentence = `Device ${there.id} has this serial number already; it was not made here.`;
      throw new Ending(exitCodes.failed, sentence);
    }
    return beginUnit(line, serialNumber, fields, place);
  }
}

/** A name that is no field is refused, and not left out of the unit: as a column, by a dry run, before it is made. */
async function demandFields(client: Client, serialNumber: string, fields: Record<string, string>): Promise<void> {
  if (Object.keys(fields).length === 0) return;
  const answer = await client.call('POST', '/provisioning/jobs?dryRun=true', {
    body: { rows: [{ ...fields, serialNumber }] },
  });
  if (answer.status === 403) throw refused(`The server refuses: ${reasonOf(answer)}`);
  if (answer.status >= 300) throw new UsageError(`--field: ${reasonOf(answer)}`);
}

/** Where the files are; the secret itself only with `--print`. */
function printPlaces(line: Line, flags: UnitFlags, serialNumber: string): void {
  const unit = line.journal.done.get(serialNumber);
  if (!unit) throw trouble('The unit does not exist.');
  const within = (path: string) => join(line.journal.directory, path);
  const file = within(flashPath(line, unit.file));
  const label = labelPath(line, unit);
  const shown = { serialNumber, deviceId: unit.deviceId, file, ...(label && { label: within(label) }) };
  if (flags.print) process.stdout.write(readFileSync(file));
  else if (flags.json) process.stdout.write(`${JSON.stringify(shown)}\n`);
  else process.stdout.write(`${file}\n`);
}
