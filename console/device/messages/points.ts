/** What a payload says, as rows to look at. The service decides what is stored; this only shows it. */

export interface ShownPoint {
  /** Empty where the payload names none. */
  category: string;
  value: string | number | boolean;
  /** Milliseconds since 1970, where the payload names a time. */
  time?: number | undefined;
}

/** Rows of a payload that are shown. */
const maxRows = 50;
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Undefined for a payload in no known form. */
export function pointsOf(payload: string): ShownPoint[] | undefined {
  const text = payload.trim();
  if (text === '') return undefined;
  const points = /^[[{"]|^(true|false|null)$|^-?\d+(\.\d+)?$/.test(text) ? ofJson(text) : ofCsv(text);
  return points?.length ? points.slice(0, maxRows) : undefined;
}

/** Lines of time,category,number,text. */
function ofCsv(text: string): ShownPoint[] | undefined {
  const points: ShownPoint[] = [];
  for (const line of text.split('\n', maxRows + 1)) {
    if (line.trim() === '' || line.startsWith('timestamp,')) continue;
    const [time = '', category, number = '', ...rest] = line.split(',').map((cell) => cell.trim());
    if (category === undefined || (time !== '' && Number.isNaN(timeOf(time)))) return undefined;
    const said = rest.join(',');
    points.push({ category, value: said === '' ? Number(number) : said, time: time === '' ? undefined : timeOf(time) });
  }
  return points;
}

const timeOf = (text: string) => (/^\d+$/.test(text) ? Number(text) : Date.parse(text));

function ofJson(text: string): ShownPoint[] | undefined {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (Array.isArray(json)) return ofSenml(json);
  if (isObject(json) && Array.isArray(json.e))
    return ofSenml(json.e.map((entry, at) => (at ? entry : { ...json, ...entry })));
  if (isObject(json))
    return Object.entries(json).flatMap(([category, value]) => (isValue(value) ? [{ category, value }] : []));
  return isValue(json) ? [{ category: '', value: json }] : undefined;
}

const isValue = (value: unknown): value is string | number | boolean =>
  ['string', 'number', 'boolean'].includes(typeof value);

/** Base values stand for all that follow. */
function ofSenml(entries: readonly unknown[]): ShownPoint[] {
  let [name, time] = ['', 0];
  return entries.slice(0, maxRows).flatMap((entry) => {
    if (!isObject(entry)) return [];
    if (typeof entry.bn === 'string') name = entry.bn;
    if (typeof entry.bt === 'number') time = entry.bt;
    const value = entry.v ?? entry.vs ?? entry.sv ?? entry.vb ?? entry.bv;
    if (!isValue(value)) return [];
    const seconds = time + (typeof entry.t === 'number' ? entry.t : 0);
    // Smaller numbers count from now (RFC 8428).
    return [{ category: `${name}${entry.n ?? ''}`, value, time: seconds >= 2 ** 28 ? seconds * 1000 : undefined }];
  });
}
