/** What a factory writes over HTTP while the service is killed: jobs, a station's devices, codes and claims. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Made } from '../support/service.ts';
import type { Api } from './api.ts';
import { untilGone, type Writer } from './writers.ts';

/** Milliseconds in which a job that was accepted must have ended after the restart. */
const patience = 60_000;
const rowsOfJob = 20;

/** Sends jobs, each accepted with 202; every row of every one of them becomes one device, whenever the process ends. */
export class JobSender implements Writer {
  #accepted: Array<{ id: string; name: string }> = [];
  #sent = 0;

  readonly api: Api;
  readonly deviceTemplateId: string;

  constructor(api: Api, deviceTemplateId: string) {
    this.api = api;
    this.deviceTemplateId = deviceTemplateId;
  }

  run(isOver: () => boolean): Promise<number> {
    this.#accepted = [];
    return untilGone(isOver, async () => {
      this.#sent += 1;
      const name = `job ${this.#sent} row`;
      const rows = Array.from({ length: rowsOfJob }, (_, n) => ({ serialNumber: `${name} ${n}` }));
      const path = `/api/v1/provisioning/jobs?template=${this.deviceTemplateId}`;
      const { status, body } = await this.api.ask('POST', path, { accountId: undefined, rows });
      if (status !== 202) throw new Error(`a job answered ${status}: ${JSON.stringify(body)}`);
      this.#accepted.push({ id: body.job.id, name });
      // The pace of the load: ten jobs a second at most.
      await sleep(100);
    });
  }

  async check(): Promise<string[]> {
    const losses: string[] = [];
    for (const { id, name } of this.#accepted) {
      const state = await this.#endOf(id);
      if (state !== 'succeeded') losses.push(`a job that was accepted is ${state}`);
      const filter = `accountId=${this.api.accountId}&serialNumber=${encodeURIComponent(`${name} `)}`;
      const { devices } = await this.api.ok('GET', `/api/v1/devices?${filter}&pageSize=1000`);
      const numbers = devices.results.map(({ serialNumber }: { serialNumber: string }) => serialNumber);
      const different = new Set(numbers).size;
      if (different !== rowsOfJob || numbers.length !== rowsOfJob)
        losses.push(`a job of ${rowsOfJob} rows made ${numbers.length} devices, ${different} of them different`);
    }
    return losses;
  }

  async #endOf(id: string): Promise<string> {
    for (const until = performance.now() + patience; ; await sleep(50)) {
      const { status, body } = await this.api.ask('GET', `/api/v1/provisioning/jobs/${id}`);
      const state = status === 200 ? body.job.state : `answered with ${status}`;
      if (!['queued', 'running'].includes(state) || performance.now() > until) return state;
    }
  }
}

/** A station makes devices: its count is that of the devices that are there, and of those that were answered at least. */
export class StationWriter implements Writer {
  #answered = 0;
  #tried = 0;
  #station: Made<'application'> | undefined;
  #jwt = '';

  readonly api: Api;
  readonly deviceTemplateId: string;

  constructor(api: Api, deviceTemplateId: string) {
    this.api = api;
    this.deviceTemplateId = deviceTemplateId;
  }

  run(isOver: () => boolean): Promise<number> {
    return untilGone(isOver, async () => {
      if (!this.#jwt) await this.#logIn();
      this.#tried += 1;
      const { accountId } = this.api;
      const body = { accountId, serialNumber: `station ${this.#tried}`, deviceTemplateId: this.deviceTemplateId };
      const response = await fetch(`${this.api.url}/api/v1/devices`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${this.#jwt}` },
        body: JSON.stringify(body),
      });
      const text = await response.text();
      if (response.status !== 200) throw new Error(`a station's device answered ${response.status}: ${text}`);
      this.#answered += 1;
    });
  }

  async check(): Promise<string[]> {
    if (!this.#jwt || !this.#station) return [];
    const { application } = await this.api.ok('GET', `/api/v1/applications/${this.#station.id}`);
    const filter = `accountId=${this.api.accountId}&serialNumber=${encodeURIComponent('station ')}&results=false`;
    const { devices } = await this.api.ok('GET', `/api/v1/devices?${filter}`);
    const [counted, there] = [application.madeDevices, devices.meta.count];
    const isRight = counted === there && there >= this.#answered && there <= this.#tried;
    return isRight ? [] : [`a station counts ${counted}, ${there} devices are there, ${this.#answered} were answered`];
  }

  async #logIn(): Promise<void> {
    const limits = {
      deviceTemplateId: this.deviceTemplateId,
      maxDevices: 1_000_000,
      expiresAt: '2099-01-01T00:00:00Z',
    };
    const body = { name: 'Crash', kind: 'station', ...limits };
    this.#station ??= (await this.api.ok('POST', '/api/v1/applications', body)).application;
    const { id: appId, appToken } = this.#station;
    this.#jwt = (await this.api.ok('POST', '/api/v1/auth/login-application', { appId, appToken })).jwt;
  }
}

/** Makes a code for a device and claims it with that: the device has moved, and stays where it is. */
export class Claimer implements Writer {
  #claimed: string[] = [];
  #organizationId = '';

  readonly api: Api;
  readonly deviceTemplateId: string;

  constructor(api: Api, deviceTemplateId: string) {
    this.api = api;
    this.deviceTemplateId = deviceTemplateId;
  }

  run(isOver: () => boolean): Promise<number> {
    const { api, deviceTemplateId } = this;
    this.#claimed = [];
    return untilGone(isOver, async () => {
      this.#organizationId ||= (await api.ok('POST', '/api/v1/organizations', { name: 'Crash' })).organization.id;
      const { device } = await api.ok('POST', '/api/v1/devices', { serialNumber: 'claimed', deviceTemplateId });
      const about = { accountId: undefined, deviceId: device.id };
      const { associationCode } = await api.ok('POST', '/api/v1/association/create-association-code', about);
      const claim = { accountId: undefined, associationCode, organizationId: this.#organizationId };
      await api.ok('POST', '/api/v1/association/start-association-with-code', claim);
      this.#claimed.push(device.id);
    });
  }

  async check(): Promise<string[]> {
    const losses: string[] = [];
    for (const deviceId of this.#claimed) {
      const { device } = await this.api.ok('GET', `/api/v1/devices/${deviceId}`);
      const { organizationId, provisioningState } = device;
      if (organizationId !== this.#organizationId || provisioningState !== 'associated')
        losses.push(`a device that was claimed is ${provisioningState} in ${organizationId}`);
    }
    return losses;
  }
}
