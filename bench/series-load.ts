/** Children of the scenario `series`: devices that publish as fast as they are acknowledged, and somebody who reads a file. */
import { once } from 'node:events';
import mqtt from 'mqtt';

/** Messages of one device that are not acknowledged yet. */
const inFlight = 50;

interface Publishing {
  url: string;
  clients: Array<{ id: string; secret: string; topic: string }>;
}
interface Reading {
  url: string;
  authorization: string;
}

const send = (message: unknown) => process.send?.(message);

async function publish(): Promise<void> {
  const [{ url, clients }] = (await once(process, 'message')) as [Publishing];
  let count = 0;
  for (const { id, secret, topic } of clients) {
    const client = await mqtt.connectAsync(url, { username: id, password: secret, reconnectPeriod: 0 });
    const next = () => {
      client.publish(topic, ',t,21.5,', { qos: 1 }, (error) => {
        if (error) return;
        count += 1;
        next();
      });
    };
    for (let lane = 0; lane < inFlight; lane += 1) next();
  }
  process.on('message', () => send(count));
  send('ready');
}

async function read(): Promise<void> {
  const [{ url, authorization }] = (await once(process, 'message')) as [Reading];
  const answer = await fetch(url, { headers: { authorization } });
  let bytes = 0;
  for await (const chunk of answer.body ?? []) bytes += chunk.length;
  send({ bytes });
}

await (process.argv[2] === 'publish' ? publish() : read());
