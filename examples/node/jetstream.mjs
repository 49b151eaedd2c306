/** Makes the stream of docs/bridges.md, or prints what it has: node examples/node/jetstream.mjs make|read HOST:PORT */
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';

const [, , task, servers] = process.argv;
const connection = await connect({ servers });
const { streams } = await jetstreamManager(connection);
if (task === 'make') {
  // For three days the stream drops a message that it gets again.
  await streams.add({ name: 'messages', subjects: ['slipway.>'], duplicate_window: 72 * 3600 * 1e9 });
} else {
  const { state } = await streams.info('messages');
  for (let seq = Math.max(1, state.first_seq); seq <= state.last_seq; seq += 1) {
    const message = await streams.getMessage('messages', { seq });
    if (message) process.stdout.write(`${message.subject} ${message.string()}\n`);
  }
}
await connection.close();
