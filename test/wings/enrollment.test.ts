/** Devices that enroll themselves. */
import '../enrollment/certificates.test.ts';
import '../enrollment/est.test.ts';
import '../enrollment/exchange.test.ts';
import '../enrollment/groups.test.ts';
import '../enrollment/renewals.test.ts';
import '../enrollment/hook.test.ts';
import '../enrollment/hostile.test.ts';
import '../enrollment/mqtt.test.ts';
