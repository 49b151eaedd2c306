/** What the pages tell people to run. */
import '../docs/snippets/devices.test.ts';
import '../docs/snippets/enroll-lines.test.ts';
import '../docs/snippets/lines.test.ts';
import '../docs/snippets/pages.test.ts';
