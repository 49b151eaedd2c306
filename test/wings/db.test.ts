/** The files and the threads of the database. */
import '../db/copies.test.ts';
import '../db/fold.test.ts';
import '../db/lock.test.ts';
import '../db/logs.test.ts';
import '../db/lookups.test.ts';
import '../db/migrations.test.ts';
import '../db/series-ranges.test.ts';
import '../db/series-removal.test.ts';
import '../db/series.test.ts';
import '../db/sqlite.test.ts';
import '../db/writer-thread.test.ts';
import '../db/held-bytes.test.ts';
import '../db/shares.test.ts';
