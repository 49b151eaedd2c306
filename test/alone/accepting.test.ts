/** Connections that come at once: many of them are accepted in one turn of the event loop. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { socketsOf } from '../support/faults.ts';
import { startService } from '../support/service.ts';

const clients = 96;
/** Node by itself would take as many turns as there are clients. */
const turnsAtMost = 48;

/** A thread that connects so many times, says so in `connected`, and keeps the connections until it is ended. */
const connecting = `
  const { connect } = require('node:net');
  const { port, clients, connected } = require('node:worker_threads').workerData;
  for (let n = 0; n < clients; n += 1)
    connect(port, '127.0.0.1', () => { Atomics.add(connected, 0, 1); Atomics.notify(connected, 0); }).on('error', () => {});
`;

/** Holds the event loop until all clients are connected to `port`, and counts the turns in which they are accepted. */
async function turnsToAccept(port: number, accepted: () => number): Promise<number> {
  const before = accepted();
  const connected = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(connecting, { eval: true, workerData: { port, clients, connected } });
  try {
    for (let seen = 0; seen < clients; seen = Atomics.load(connected, 0)) Atomics.wait(connected, 0, seen);
    let turns = 0;
    for (; accepted() - before < clients; turns += 1) await nextTurn();
    return turns;
  } finally {
    await worker.terminate();
  }
}

t.test('of those who connect at once many are accepted in one turn, over MQTT and over HTTP', async (t) => {
  const service = await startService(t);
  const { server } = service;
  const mqtt = await turnsToAccept(server.mqttPort, () => socketsOf(service));
  t.ok(mqtt <= turnsAtMost, `${clients} connections to the MQTT port were accepted in ${mqtt} turns`);
  let accepted = 0;
  server.app.server.on('connection', () => {
    accepted += 1;
  });
  const http = await turnsToAccept(Number(new URL(server.url).port), () => accepted);
  t.ok(http <= turnsAtMost, `${clients} connections to the HTTP port were accepted in ${http} turns`);
});
