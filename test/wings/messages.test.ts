/** Messages that are kept: series, logs, streams; and the overview of an account. */
import '../messages/buckets.test.ts';
import '../messages/keeping.test.ts';
import '../messages/log-pages.test.ts';
import '../messages/log-search.test.ts';
import '../messages/logs.test.ts';
import '../messages/payload-forms.test.ts';
import '../messages/payload.test.ts';
import '../messages/properties.test.ts';
import '../messages/publish.test.ts';
import '../messages/series-files.test.ts';
import '../messages/stream.test.ts';
import '../messages/time-series.test.ts';
import '../overview/overview.test.ts';
