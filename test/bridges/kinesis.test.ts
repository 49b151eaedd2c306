/** Kinesis when it refuses some records of a request: a stand-in of its endpoint, because no server from npm does that. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const refusal = 'ProvisionedThroughputExceededException';

interface PutRecord {
  key: string;
  text: string;
  isStored: boolean;
}

/** Answers PutRecords. It refuses each record as often as `refusals` says for `<partition key> <payload>`. */
async function startStandIn(t: Test, refusals: Map<string, number>) {
  const requests: PutRecord[][] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { Records } = JSON.parse(Buffer.concat(chunks).toString());
    const records: PutRecord[] = Records.map(({ PartitionKey: key, Data }: { PartitionKey: string; Data: string }) => {
      const text = Buffer.from(Data, 'base64').toString();
      const left = refusals.get(`${key} ${text}`) ?? 0;
      refusals.set(`${key} ${text}`, left - 1);
      return { key, text, isStored: left <= 0 };
    });
    requests.push(records);
    const answer = {
      FailedRecordCount: records.filter(({ isStored }) => !isStored).length,
      Records: records.map(({ isStored }, index) =>
        isStored
          ? { SequenceNumber: `${requests.length}${index}`, ShardId: 'shardId-000000000000' }
          : { ErrorCode: refusal, ErrorMessage: 'Rate exceeded' },
      ),
    };
    response.writeHead(200, { 'content-type': 'application/x-amz-json-1.1' }).end(JSON.stringify(answer));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return { requests, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

t.test(
  'only records that Kinesis refused are sent again, and later records of their device wait for them',
  async (t) => {
    const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true', SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0' };
    const service = await startService(t, { env });
    const template = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
    const refusals = new Map<string, number>();
    const kinesis = await startStandIn(t, refusals);
    const credentials = { accessKeyId: 'a', secretAccessKey: 'b' };
    const bridge = await service.create('/bridges', 'bridge', {
      name: 'Kinesis',
      kind: 'kinesis',
      // Nothing listens there, so that everything is in the outbox before the first request.
      url: 'http://127.0.0.1:9',
      form: 'raw',
      settings: { stream: 'messages', region: 'eu-west-1' },
      credentials,
    });
    const get = async () => (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge;
    const ids: string[] = [];
    const texts = ['0', '1', '2'];
    for (let count = 0; count < 3; count += 1) {
      const { device, secret } = await service.device({ deviceTemplateId: template.id });
      ids.push(device.id);
      const client = await service.connect({ deviceId: device.id, secret });
      for (const text of texts) await client.publishAsync(service.topic(device.id, 'sure'), text, { qos: 1 });
    }
    await until(async () => (await get()).status.lastFailureReason !== null);
    t.equal((await get()).status.pending, 9);
    const [first, second, third] = ids;
    refusals.set(`${second} 0`, 2).set(`${third} 1`, 1);
    await service.ok('PUT', `/api/v1/bridges/${bridge.id}`, {
      headers: { etag: (await get()).version },
      body: { url: kinesis.url, credentials },
    });
    await until(async () => (await get()).status.pending === 0);
    const { status } = await get();
    t.match(status, { deadLetters: 0, lastFailureReason: new RegExp(refusal) });

    for (const records of kinesis.requests)
      t.equal(new Set(records.map(({ key }) => key)).size, records.length, 'one record of a device in each request');
    t.ok(
      kinesis.requests.some((records) => new Set(records.map(({ isStored }) => isStored)).size === 2),
      'a request was refused in part',
    );
    const sent = (id: string | undefined) =>
      kinesis.requests
        .flat()
        .filter(({ key }) => key === id)
        .map(({ text }) => text);
    t.strictSame(sent(first), ['0', '1', '2'], 'what was stored is not sent again');
    t.strictSame(sent(second), ['0', '0', '0', '1', '2'], 'the refused record again, and nothing before it is stored');
    t.strictSame(sent(third), ['0', '1', '1', '2']);
  },
);

t.end();
