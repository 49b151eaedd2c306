/** The console, in a browser. */
import '../console/access.test.ts';
import '../console/charts.test.ts';
import '../console/claim.test.ts';
import '../console/console.test.ts';
import '../console/device.test.ts';
import '../console/enrollment.test.ts';
import '../console/home.test.ts';
import '../console/lists.test.ts';
import '../console/places.test.ts';
import '../console/roles.test.ts';
import '../console/search.test.ts';
import '../console/work.test.ts';
