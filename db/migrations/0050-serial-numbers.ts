/**
 * Serial numbers lose what nobody sees at their ends, and are composed (NFC). Of two that a group then has once, the second
 * stays as it was.
 */
import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, at) => from + at);
/** Control characters, blanks, characters without width, and the byte order mark. NUL is in no text. */
const unseen = [
  ...range(1, 32),
  ...range(127, 160),
  ...[0x1680, ...range(0x2000, 0x200d), 0x2028, 0x2029, 0x202f, 0x205f, 0x2060, 0x3000, 0xfeff],
];
/** Soft hyphens, and marks of the direction of writing. */
const marks = [0xad, 0x61c, 0x180e, 0x200e, 0x200f, ...range(0x202a, 0x202e), ...range(0x2061, 0x206f)];

export const name = '0050-serial-numbers';

export async function up(db: Kysely<unknown>): Promise<void> {
  await trimAll(db, unseen);
}

/** A later step: more characters than `up` knew. */
export const withoutMarks = {
  name: '0065-serial-numbers-without-marks',
  up: (db: Kysely<unknown>) => trimAll(db, [...unseen, ...marks]),
};

/** A later step: "é" is one character, not a letter and a mark. `nfc` is a function of the connection that migrates. */
export const composed = {
  name: '0066-composed-serial-numbers',
  up: (db: Kysely<unknown>) => replaceAll(db, 'nfc("serialNumber")', `"serialNumber" GLOB '*[^ -~]*'`),
};

function trimAll(db: Kysely<unknown>, characters: readonly number[]): Promise<void> {
  const trimmed = `trim("serialNumber", char(${characters.join(', ')}))`;
  return replaceAll(db, trimmed, `${trimmed} <> ''`);
}

async function replaceAll(db: Kysely<unknown>, replaced: string, isMeant: string): Promise<void> {
  const isOther = `${isMeant} AND "serialNumber" <> ${replaced}`;
  await executeAll(db, [
    `UPDATE "devices" SET "serialNumber" = ${replaced} WHERE ${isOther}`,
    `UPDATE OR IGNORE "enrollments" SET "serialNumber" = ${replaced} WHERE ${isOther}`,
  ]);
}
