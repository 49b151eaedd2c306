/** Whole flows: a demo, backups, processes that end. */
import '../flows/backup.test.ts';
import '../flows/demo.test.ts';
import '../flows/doctor.test.ts';
import '../flows/fence.test.ts';
import '../flows/first-device.test.ts';
import '../flows/process.test.ts';
import '../flows/tls-reload.test.ts';
