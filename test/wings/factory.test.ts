/** Provisioning: jobs, formats and stations of a line. */
import '../factory/bulk.test.ts';
import '../factory/equipping.test.ts';
import '../factory/formats.test.ts';
import '../factory/held-database.test.ts';
import '../factory/intake.test.ts';
import '../factory/labels.test.ts';
import '../factory/line-connect.test.ts';
import '../factory/line-lost.test.ts';
import '../factory/line-server.test.ts';
import '../factory/line.test.ts';
import '../factory/one.test.ts';
import '../factory/open-jobs.test.ts';
import '../factory/provisioning.test.ts';
import '../factory/results.test.ts';
import '../factory/stations.test.ts';
import '../factory/verification.test.ts';
