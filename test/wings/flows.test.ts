/** Whole flows: a demo, backups, moves of accounts, processes that end. */
import '../cells/account-move-rest.test.ts';
import '../flows/backup.test.ts';
import '../flows/demo.test.ts';
import '../flows/doctor.test.ts';
import '../flows/fence.test.ts';
import '../flows/first-device.test.ts';
import '../flows/process.test.ts';
import '../flows/tls-reload.test.ts';
