/** Jobs, while another program holds the database for longer than is waited for it. */
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import Sqlite from 'better-sqlite3';
import { makeImpatient } from '../support/faults.ts';
import { follow, postRows } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { serials } from './command.ts';

const t = await part(import.meta);

const rows = 2000;

t.test('a job waits as long as another program holds the database, and goes on where it was', async (t) => {
  const logLines: string[] = [];
  const service = await startService(t, { logLines });
  const state = async (id: string) => (await service.ok('GET', `/api/v1/provisioning/jobs/${id}`)).job;
  const said = () => logLines.filter((line) => /a job (waits|could not go on)/.test(line));

  /** Holds the file in the middle of a job until it has said that it waits. */
  const heldUp = async (id: string) => {
    const before = said().length;
    const file = await hold(service);
    // On a slow machine it may not have begun.
    const { done, state: held } = await state(id);
    t.ok(done < rows, 'before its end');
    await until(() => said().length > before);
    t.match(said().at(-1), 'a job waits: another program holds the database');
    t.match(await state(id), { state: held, done });
    file.exec('ROLLBACK');
    file.close();
    t.match((await follow(service, id)).at(-1), { state: 'succeeded', done: rows, failed: 0, skipped: 0 });
  };

  // In the thread that executes long transactions: it is not waited for at all.
  await makeImpatient(service, 'longTransaction');
  const { body } = await postRows(service, serials(rows, 'HELD'));
  await heldUp(body.job.id);
  await makeImpatient(service, 'transaction');
  const asked = { action: 'delete', filter: { serialNumber: 'HELD' } };
  const bulk = await service.http('POST', '/api/v1/devices/jobs', { body: asked });
  await heldUp(bulk.body.job.id);
});

/** A connection of another program that has begun to write; it waits for nobody, because nobody would go on meanwhile. */
async function hold({ directory }: Service): Promise<Sqlite.Database> {
  const file = new Sqlite(join(directory, 'registry.db'), { timeout: 0 });
  for (;;) {
    try {
      file.exec('BEGIN IMMEDIATE');
      return file;
    } catch (error) {
      if (!(error instanceof Sqlite.SqliteError) || error.code !== 'SQLITE_BUSY') throw error;
      await nextTurn();
    }
  }
}

t.end();
