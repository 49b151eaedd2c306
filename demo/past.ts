/** The day before the demo began, for the lines of Home. No API writes the past, so it goes into the database. */
import { join } from 'node:path';
import Database from 'better-sqlite3';

const step = 5 * 60_000;
const day = 24 * 60 * 60_000;
const wave = (time: number) => Math.sin(((time % day) / day) * 2 * Math.PI - 2);

/** `online` are the devices that are online by day. The server may run. */
export function writePast(data: string, accountId: string, online: number): void {
  const db = new Database(join(data, 'registry.db'));
  try {
    db.pragma('busy_timeout = 5000');
    const insert = db.prepare(
      'INSERT OR IGNORE INTO "activity" ("accountId", "time", "connected", "messages", "refusals", "causes") VALUES (?, ?, ?, ?, ?, ?)',
    );
    const last = Math.floor(Date.now() / step) * step - step;
    const write = db.transaction(() => {
      for (let time = last - day + step; time <= last; time += step) {
        const connected = Math.round(online * (0.85 + 0.13 * wave(time)) + Math.random() * 3);
        const messages = Math.round(connected * (28 + 4 * Math.random()));
        insert.run(accountId, time, connected, messages, Math.random() < 0.04 ? 1 : 0, '{}');
      }
    });
    write();
  } finally {
    db.close();
  }
}
