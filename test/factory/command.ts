/** The command as an engineer runs it: on a directory, against a service. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import type { Service } from '../support/service.ts';
import { nvsText, readCsv, readNvs } from './nvs.ts';

export interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

/** What is in the flash file of a unit. */
export interface MadeUnit {
  serialNumber: string;
  deviceId: string;
  secret: string;
  broker: string;
  ca: string | undefined;
  certificate: string | undefined;
  privateKey: string | undefined;
}

export class Station {
  readonly directory: string;
  readonly out: string;

  readonly service: Service;
  readonly env: Record<string, string>;

  constructor(t: Test, service: Service, env: Record<string, string> = {}) {
    this.service = service;
    this.env = env;

    this.directory = temporaryDirectory(t);
    this.out = join(this.directory, 'out');
  }

  /** Runs a command. What makes units gets the broker of the service, which is on this machine, unless it is given one. */
  async run(...args: string[]): Promise<Ended> {
    const makes = args[0] === 'provision' && !args.includes('--broker') && !args.includes('--dry-run');
    return runCommand(makes ? [...args, ...(await this.broker())] : args, this.environment);
  }

  /** The flag with the address that the service gives to units. */
  async broker(): Promise<string[]> {
    const { provisioning } = await this.service.ok('GET', '/api/v1/provisioning/addresses');
    return ['--broker', provisioning.broker];
  }

  get environment(): Record<string, string> {
    return { SLIPWAY_URL: this.service.server.url, SLIPWAY_TOKEN: this.service.admin, ...this.env };
  }

  /** Writes rows as a CSV file; its path. */
  csv(rows: ReadonlyArray<Record<string, string>>, name = 'units.csv'): string {
    const columns = Object.keys(rows[0] ?? {});
    const cells = rows.map((row) =>
      columns.map((column) => `"${(row[column] ?? '').replaceAll('"', '""')}"`).join(','),
    );
    const path = join(this.directory, name);
    writeFileSync(path, `${[columns.join(','), ...cells].join('\n')}\n`);
    return path;
  }

  provision(csv: string, ...more: string[]): Promise<Ended> {
    return this.run('provision', '--csv', csv, '--format', 'esp-nvs-csv', '--out', this.out, ...more);
  }

  /** What is in a file of the directory. */
  read(name: string): string {
    return readFileSync(join(this.out, name), 'utf8');
  }

  names(folder = ''): string[] {
    mkdirSync(join(this.out, folder), { recursive: true });
    return readdirSync(join(this.out, folder)).sort();
  }

  /** The units that the index of the directory names, each with what its NVS file holds. */
  units(): MadeUnit[] {
    const [, ...rows] = readCsv(this.read('units.csv'));
    return rows.map(([serialNumber = '', , file = '']) => {
      const unit = this.unitIn(file);
      if (unit.serialNumber !== serialNumber) throw new Error(`${file} is not of ${serialNumber}`);
      return unit;
    });
  }

  /** What an NVS file of the directory gives to a unit's firmware. */
  unitIn(file: string): MadeUnit {
    const nvs = readNvs(this.read(file));
    const value = (key: string) => nvsText(nvs, `slipway/${key}`);
    const text = (key: string) => value(key) ?? '';
    return {
      serialNumber: text('serial_number'),
      deviceId: text('username'),
      secret: text('password'),
      broker: text('broker_uri'),
      ca: value('ca_cert'),
      certificate: value('client_cert'),
      privateKey: value('client_key'),
    };
  }
}

export const serials = (count: number, prefix = 'SN') =>
  Array.from({ length: count }, (_, at) => ({ serialNumber: `${prefix}-${String(at + 1).padStart(4, '0')}` }));

/** The serial numbers of all live devices, sorted. */
export async function devicesOf(service: Service): Promise<string[]> {
  const path = `/api/v1/devices?accountId=${service.accountId}&pageSize=1000`;
  const { devices } = await service.ok('GET', path);
  return devices.results.map(({ serialNumber }) => serialNumber).sort();
}
