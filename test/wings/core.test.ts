/** What needs a service least: settings, ids, limits, pages, emails. */
import '../addresses.test.ts';
import '../config.test.ts';
import '../disk-share.test.ts';
import '../ids.test.ts';
import '../limits.test.ts';
import '../outbound.test.ts';
import '../owners.test.ts';
import '../purge.test.ts';
import '../quotas.test.ts';
import '../scheduler.test.ts';
import '../topics.test.ts';
import '../docs/architecture.test.ts';
import '../docs/configuration.test.ts';
import '../formats/hidden-numbers.test.ts';
import '../emails/emails.test.ts';
import '../bench/figures.test.ts';
import '../gathered.test.ts';
