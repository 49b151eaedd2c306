/** Makes units: a job of one row each, so that what was made once is found again after a reload or a lost answer. */
import { asObject } from '../../src/factory/results/unit-object.ts';
import { send } from '../app/acting.ts';
import { api, rawBody, unwrap } from '../app/api.ts';
import { finishJob } from '../devices/run.tsx';
import { unzip } from '../parts/formats/unzip.ts';
import { texts } from '../texts.ts';

export const formats = ['esp-nvs-csv', 'env', 'c-header', 'json'] as const;
export type Format = (typeof formats)[number];

export interface Unit {
  jobId: string;
  serialNumber: string;
  deviceId: string;
}

/** Of the files of one unit. */
const maxUnitBytes = 16 * 1024 * 1024;

export interface FlashFile {
  name: string;
  text: string;
}

/** Makes the unit, or finds the one that this station has made. @throws Error with the reason why there is none. */
export async function makeUnit(serialNumber: string): Promise<Unit> {
  const rows = rawBody(JSON.stringify({ rows: [{ serialNumber }] }), 'application/json');
  const { job } = await unwrap(api.POST('/api/v1/provisioning/jobs', rows));
  let ended = await finishJob(job.id, () => {});
  const params = { path: { id: job.id } };
  if (ended.done === 0 && ended.skipped === 0) {
    // The same rows are the same job: what was refused before may go by now.
    await unwrap(api.POST('/api/v1/provisioning/jobs/{id}/retry', { params }));
    ended = await finishJob(job.id, () => {});
  }
  const answer = await unwrap(api.GET('/api/v1/provisioning/jobs/{id}/rows', { params }));
  const [row] = answer.rows.results ?? [];
  if (row?.state === 'done' && row.deviceId !== null) return { jobId: job.id, serialNumber, deviceId: row.deviceId };
  if (row?.state === 'skipped') throw new Error(texts.station.exists(serialNumber));
  throw new Error(row?.errors[0]?.message ?? ended.reason ?? texts.failed);
}

async function readOnly(path: string) {
  const response = await send(new Request(path));
  if (!response.ok) throw await refusalOf(response);
  const [file] = await unzip(await response.arrayBuffer(), { maxBytes: maxUnitBytes });
  if (!file) throw new Error(texts.failed);
  return { name: file[0], content: file[1] };
}

async function refusalOf(response: Response): Promise<Error> {
  const { error } = await response.json();
  return new Error(error?.message ?? texts.failed);
}

export async function readFlashFile(unit: Unit, format: Format): Promise<FlashFile> {
  const { jobId } = unit;
  if (format === 'json') {
    const response = await send(new Request(`/api/v1/provisioning/jobs/${jobId}/results?format=json`));
    if (!response.ok) throw await refusalOf(response);
    const { results } = await response.json();
    const { name } = await readOnly(`/api/v1/provisioning/jobs/${jobId}/labels?format=svg`);
    const text = `${JSON.stringify(asObject(results[0], {}), null, 2)}\n`;
    return { name: name.replace(/^\d+-/, '').replace(/svg$/, 'json'), text };
  }
  const { name, content } = await readOnly(`/api/v1/provisioning/jobs/${jobId}/results?format=${format}`);
  return { name: name.replace(/^\d+-/, ''), text: new TextDecoder().decode(content) };
}

/** The label as an address of a picture. */
export async function readLabel({ jobId }: Unit): Promise<string> {
  const { content } = await readOnly(`/api/v1/provisioning/jobs/${jobId}/labels?format=svg`);
  return `data:image/svg+xml,${encodeURIComponent(new TextDecoder().decode(content))}`;
}

export async function verifyUnit({ deviceId }: Unit, timeoutSeconds: number) {
  const body = { deviceId, timeoutSeconds };
  return (await unwrap(api.POST('/api/v1/provisioning/verify', { body }))).verification;
}
export type Verdict = Pick<Awaited<ReturnType<typeof verifyUnit>>, 'passed' | 'connected' | 'published'>;
