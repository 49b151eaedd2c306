/** Jobs as their makers see them. */
import type { Answer, Request, Service } from './service.ts';

/** The events of a job until it ends; the last one is what it has come to. */
export async function follow(service: Service, id: string, token = service.admin) {
  const { text } = await service.http('GET', `/api/v1/provisioning/jobs/${id}/events`, { token });
  return [...text.matchAll(/^event: job\ndata: (.*)$/gm)].map(([, data = '']) => JSON.parse(data));
}

/** Sends rows, as CSV when they are text. */
export function postRows(
  service: Service,
  rows: string | object[],
  query = '',
  request: Request = {},
): Promise<Answer> {
  const isCsv = typeof rows === 'string';
  const headers = { ...(isCsv && { 'content-type': 'text/csv' }), ...request.headers };
  const body = isCsv ? rows : { rows };
  return service.http('POST', `/api/v1/provisioning/jobs${query}`, { ...request, headers, body });
}

/** A job of these rows, ended. */
export async function provision(service: Service, rows: string | object[], query = '') {
  const { status, body, text } = await postRows(service, rows, query);
  if (status !== 202) throw new Error(`a job answered ${status}: ${text}`);
  return (await follow(service, body.job.id)).at(-1);
}

/** A file, as it comes. */
export function download(service: Service, path: string, token = service.admin): Promise<Response> {
  return fetch(service.server.url + path, { headers: { authorization: `Bearer ${token}` } });
}

/** What a job has made. */
export async function unitsOf(service: Service, id: string) {
  const response = await download(service, `/api/v1/provisioning/jobs/${id}/results`);
  if (response.status !== 200) throw new Error(`results answered ${response.status}`);
  const text = await response.text();
  const units = text.split('\n').flatMap((line) => (line ? [JSON.parse(line)] : []));
  for (const { secret } of units) service.secrets.add(secret);
  return units;
}

/** The rows of a job, up to a thousand. */
export async function rowsOf(service: Service, id: string, state = '') {
  const query = `?pageSize=1000${state && `&state=${state}`}`;
  return (await service.ok('GET', `/api/v1/provisioning/jobs/${id}/rows${query}`)).rows.results;
}
