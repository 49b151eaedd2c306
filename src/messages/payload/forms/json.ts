/** JSON: a number, or an object of values by category. */
import type { Point } from '../../../../db/messages/store.ts';
import { type Digits, isObject, type Reading, toPoint } from '../reading.ts';
import { csvForm } from './csv.ts';

/** What it is, for the explanation of a refusal. */
export const jsonForm = 'JSON: a number, or an object of numbers, texts and booleans, such as {"temperature": 21.5}';

/** Objects of ts and values are the form of other services; as categories they would be two wrong points. */
export function isTimed(json: unknown): boolean {
  return isObject(json) && 'ts' in json && 'values' in json;
}

export const timedIsUnknown = `An object with ts and values is not a form of points. Take ${jsonForm}; or, with a time, ${csvForm}.`;

/**
 * JSON: a number, or an object of numbers, texts and booleans by category; `null` is skipped. An integer that a number cannot hold
 * is rounded, with its digits as text.
 */
export function readJson(json: unknown, now: number, digits: Digits): Reading {
  if (isTimed(json)) return { reason: timedIsUnknown };
  if (!isObject(json)) {
    const point =
      typeof json === 'number'
        ? toPoint(now, '', json, digits(undefined, '') ?? null)
        : 'it is not a number or an object.';
    return typeof point === 'string' ? { reason: point } : { points: [point] };
  }
  const points: Point[] = [];
  for (const [category, value] of Object.entries(json)) {
    if (value === null) continue;
    const point = jsonPoint(category, value, now, digits(json, category));
    if (typeof point === 'string') return { reason: `property ${category.slice(0, 100)}: ${point}` };
    points.push(point);
  }
  return points.length > 0 ? { points } : { reason: 'it holds no value.' };
}

function jsonPoint(category: string, value: unknown, now: number, digits: string | undefined): Point | string {
  if (typeof value === 'string') return toPoint(now, category, null, value);
  if (typeof value === 'number' || typeof value === 'boolean')
    return toPoint(now, category, Number(value), digits ?? null);
  return 'it is not a number, a text or a boolean.';
}
