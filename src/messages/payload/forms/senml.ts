/** SenML: the array of RFC 8428, and the object before it. */
import type { Point } from '../../../../db/messages/store.ts';
import { type Digits, isNumber, isObject, type Reading, toPoint } from '../reading.ts';

/** What it is, for the explanation of a refusal. */
export const senmlForm = 'SenML: such as [{"n": "temperature", "v": 21.5}]';

/** SenML: a time below this many seconds is relative to now (RFC 8428, 4.5.3). */
const relativeLimit = 2 ** 28;
/** The version of RFC 8428. */
const senmlVersion = 10;

/** SenML, the old object and the array of RFC 8428. */
export function readSenml(json: unknown, now: number, digits: Digits): Reading {
  if (isObject(json) && Array.isArray(json.e)) return readOldSenml(json, json.e, now, digits);
  return Array.isArray(json)
    ? readRfcSenml(json, now, digits)
    : { reason: 'it is neither an array nor has it a list e.' };
}

/** The old form: base values stand once, next to the entries `e`; `bv` is a boolean. */
function readOldSenml(base: Record<string, unknown>, entries: unknown[], now: number, digits: Digits): Reading {
  const points: Point[] = [];
  for (const [index, entry] of entries.entries()) {
    if (!isObject(entry)) return { reason: `entry ${index + 1}: it is not an object.` };
    const { n, t, v, sv, bv } = entry;
    const point = senmlPoint(
      {
        name: [base.bn, n],
        seconds: [base.bt, t],
        number: [undefined, v],
        boolean: bv,
        text: sv ?? digits(entry, 'v'),
      },
      now,
    );
    if (typeof point === 'string') return { reason: `entry ${index + 1}: ${point}` };
    points.push(point);
  }
  return points.length > 0 ? { points } : { reason: 'it holds no entry.' };
}

/** RFC 8428: base values hold from their record on; `vb` is a boolean, `vd` data as base64, `bv` is added to `v`. */
function readRfcSenml(records: unknown[], now: number, digits: Digits): Reading {
  const points: Point[] = [];
  let bn: unknown;
  let bt: unknown;
  let bv: unknown;
  for (const [index, record] of records.entries()) {
    if (!isObject(record)) return { reason: `record ${index + 1}: it is not an object.` };
    const unknown = mustUnderstand(record);
    if (unknown !== undefined) return { reason: `record ${index + 1}: ${unknown}` };
    bn = record.bn ?? bn;
    bt = record.bt ?? bt;
    bv = record.bv ?? bv;
    const { n, t, v, vs, vb, vd } = record;
    const holdsNoValue = [v, vs, vb, vd].every((value) => value === undefined);
    // A record may carry base values or a sum alone (RFC 8428, 4.2).
    if (holdsNoValue && ['bn', 'bt', 'bv', 'bu', 'bs', 'bver', 's'].some((name) => name in record)) continue;
    const text = vs ?? vd ?? (bv === undefined ? digits(record, 'v') : undefined);
    const point = senmlPoint({ name: [bn, n], seconds: [bt, t], number: [bv, v], boolean: vb, text }, now);
    if (typeof point === 'string') return { reason: `record ${index + 1}: ${point}` };
    points.push(point);
  }
  return points.length > 0 ? { points } : { reason: 'it holds no value.' };
}

/** What says that the record cannot be understood (RFC 8428, 4.4): a later version, or a label that must be understood. */
function mustUnderstand(record: Record<string, unknown>): string | undefined {
  const { bver = senmlVersion } = record;
  if (!isNumber(bver) || bver > senmlVersion) return `the version (bver) is above ${senmlVersion}.`;
  const label = Object.keys(record).find((name) => name.endsWith('_'));
  return label === undefined ? undefined : `the label ${label.slice(0, 100)} is unknown, and has to be understood.`;
}

/** One SenML value; pairs are a base value and the entry's own. */
interface SenmlValue {
  name: [unknown, unknown];
  seconds: [unknown, unknown];
  number: [unknown, unknown];
  boolean: unknown;
  text: unknown;
}

function senmlPoint({ name, seconds, number, boolean, text }: SenmlValue, now: number): Point | string {
  const [baseName = '', ownName = ''] = name;
  if (typeof baseName !== 'string' || typeof ownName !== 'string') return 'the name is not a text.';
  const [baseTime = 0, ownTime = 0] = seconds;
  if (!isNumber(baseTime) || !isNumber(ownTime)) return 'the time is not a number.';
  const [baseNumber = 0, ownNumber] = number;
  if (!isNumber(baseNumber) || (ownNumber !== undefined && !isNumber(ownNumber))) return 'the value is not a number.';
  if (boolean !== undefined && typeof boolean !== 'boolean') return 'the boolean value is not a boolean.';
  if (text !== undefined && typeof text !== 'string') return 'the text value is not a text.';

  const total = baseTime + ownTime;
  const time = Math.round(total * 1000) + (total < relativeLimit ? now : 0);
  const numericValue =
    ownNumber !== undefined ? baseNumber + ownNumber : boolean === undefined ? null : Number(boolean);
  return toPoint(time, baseName + ownName, numericValue, text ?? null);
}
