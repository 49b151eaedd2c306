/** Bridges: what they deliver, to whom, and what they refuse. */
import '../bridges/bridges.test.ts';
import '../bridges/delivery.test.ts';
import '../bridges/hostile.test.ts';
import '../bridges/kafka.test.ts';
import '../bridges/kinesis.test.ts';
import '../bridges/patience.test.ts';
import '../bridges/records.test.ts';
import '../bridges/restart.test.ts';
import '../bridges/streams.test.ts';
import '../bridges/turns.test.ts';
