/** A webhook, which answers as Kinesis where it is asked so, in a thread of its own, so that what it reads does not delay the load generator. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

/** Places in the shared memory. */
const [acceptedAt, awayAt] = [0, 1];

export interface Hook {
  url: string;
  /** Messages in requests that were answered with 200. */
  count(): number;
  /** While it is away it answers 503. */
  setAway(isAway: boolean): void;
  close(): Promise<void>;
}

export async function startHook(): Promise<Hook> {
  const shared = new Int32Array(new SharedArrayBuffer(8));
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: shared });
  const [port] = await once(worker, 'message');
  return {
    url: `http://127.0.0.1:${port}/`,
    count: () => Atomics.load(shared, acceptedAt),
    setAway: (isAway) => void Atomics.store(shared, awayAt, isAway ? 1 : 0),
    close: async () => void (await worker.terminate()),
  };
}

async function serve(shared: Int32Array): Promise<void> {
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('latin1');
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      const isAway = Atomics.load(shared, awayAt) === 1;
      const records = body.split('"PartitionKey":').length - 1;
      if (!isAway) Atomics.add(shared, acceptedAt, records || body.split('"id":').length - 1);
      const answer = { FailedRecordCount: 0, Records: Array(records).fill({ SequenceNumber: '1', ShardId: 'shard' }) };
      response.writeHead(isAway ? 503 : 200).end(records > 0 ? JSON.stringify(answer) : undefined);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  parentPort?.postMessage((server.address() as AddressInfo).port);
}

if (!isMainThread) await serve(workerData);
