/** A Kafka cluster that librdkafka plays, if it is installed: brokers that go down, and error codes on demand. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Consumer, ListOffsetTimestamps } from '@platformatic/kafka';
import type { Test } from 'tap';

const program = fileURLToPath(new URL('kafka_cluster.py', import.meta.url));
const hasLibrary = spawnSync('python3', ['-c', 'import ctypes; ctypes.CDLL("librdkafka.so.1")']).status === 0;

/** Options of a test: it says so when there is nothing to test with. */
export const withKafkaCluster = hasLibrary ? {} : { skip: 'python3 with librdkafka1 is not installed' };

/** Starts so many brokers; they end with the test. `tell` resolves when a command of the program is done. */
export async function kafkaCluster(t: Test, brokers: number) {
  const child = spawn('python3', [program, String(brokers)], { stdio: ['pipe', 'pipe', 'ignore'] });
  t.teardown(async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const bootstraps = String((await lines.next()).value).split(',');
  const tell = async (...command: Array<string | number>) => {
    child.stdin.write(`${command.join(' ')}\n`);
    await lines.next();
  };
  /** How many records a topic has. One partition at a time: the cluster answers for several in a form of its own. */
  const count = async (topic: string, partitions: number) => {
    const consumer = new Consumer({ groupId: 'count', clientId: 'count', bootstrapBrokers: bootstraps });
    let sum = 0;
    for (let partition = 0; partition < partitions; partition += 1) {
      const of = { topics: [topic], partitions: { [topic]: [partition] } };
      const offsets = await consumer.listOffsets({ ...of, timestamp: ListOffsetTimestamps.LATEST });
      sum += Number(offsets.get(topic)?.[partition] ?? 0);
    }
    await consumer.close(true);
    return sum;
  };
  return { bootstraps, url: `kafka://${bootstraps[0]}`, tell, count };
}
