/** The tests of the broker and of the registry once more, with HAProxy in front of every service that they start. */
import t from 'tap';
import { filesAt, groupsOf } from '../run/files.ts';
import { argumentsFor } from '../run/processes.ts';
import { withHaproxy } from '../support/haproxy.ts';

const options = { ...withHaproxy, env: { ...process.env, TEST_CELLS: '1' } };

for (const group of groupsOf(filesAt(['test/broker', 'test/registry'])))
  t.spawn(process.execPath, argumentsFor(group), options, `${group[0]} and ${group.length - 1} more, behind HAProxy`);
