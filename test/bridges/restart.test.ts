/** What is promised of level 2 when the process dies and the target is away. */
import mqtt from 'mqtt';
import { freePort } from '../support/free-port.ts';
import { part } from '../support/part.ts';
import { startProcess } from '../support/process.ts';
import { type Service, startService } from '../support/service.ts';
import { byDevice, startReceiver, textOf } from './receiver.ts';

const t = await part(import.meta);

t.test(
  'kill -9 while the target is away: every acknowledged message of level 2 comes, in order per device',
  async (t) => {
    const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
    const service = await startService(t, { env });
    const channels = [
      { name: 'sure', streamBridgeDelivery: 2 },
      { name: 'series', streamBridgeDelivery: 2, persistenceType: 'timeSeries' },
    ];
    const { id: deviceTemplateId } = await service.template({ channels });
    const devices: Array<Awaited<ReturnType<Service['device']>>> = [];
    for (let count = 0; count < 3; count += 1) devices.push(await service.device({ deviceTemplateId }));
    const port = await freePort();
    const receiver = await startReceiver(t, { port });
    const { url } = receiver;
    await service.create('/bridges', 'bridge', {
      name: 'b',
      kind: 'webhook',
      url,
      secret: 'sixteen or more characters'.replaceAll(' ', '-'),
    });
    const topics = (deviceId: string) => channels.map(({ name }) => service.topic(deviceId, name));
    await service.close();
    await receiver.close();

    const server = await startProcess(t, service.directory, env);
    const acknowledged = new Map<string, number[]>();
    let total = 0;
    await new Promise<void>((enough) => {
      for (const { device, secret } of devices) {
        const mine: number[] = [];
        acknowledged.set(device.id, mine);
        const login = { username: device.id, password: secret, reconnectPeriod: 0 };
        const client = mqtt.connect(`mqtt://127.0.0.1:${server.mqttPort}`, login);
        client.on('error', () => {});
        const [simple = '', series = ''] = topics(device.id);
        const publish = (n: number) =>
          client.publish(n % 2 ? simple : series, `,n,${n},`, { qos: 1 }, (error) => {
            if (error) return;
            mine.push(n);
            total += 1;
            if (total === 1500) enough();
            publish(n + 20);
          });
        client.once('connect', () => {
          for (let n = 0; n < 20; n += 1) publish(n);
        });
        t.teardown(() => client.end(true));
      }
    });
    t.equal(await server.stop('SIGKILL'), 'SIGKILL');

    // Half of it goes out before the next kill, which may repeat messages and must lose none.
    const back = await startReceiver(t, { port });
    let answered = 0;
    back.behave = () => {
      answered += 1;
      return answered < 3 ? 200 : 'never';
    };
    const second = await startProcess(t, service.directory, env);
    await back.tried(3);
    t.equal(await second.stop('SIGKILL'), 'SIGKILL');
    back.behave = () => 200;
    const third = await startProcess(t, service.directory, env);
    const promised = [...acknowledged].flatMap(([id, all]) => all.map((n) => `${id} ,n,${n},`));
    const missing = new Set(promised);
    for (let read = 0; missing.size > 0; read += 1) {
      await back.received(read + 1);
      const message = back.messages[read];
      if (message) missing.delete(`${message.deviceId} ${textOf(message)}`);
    }
    t.ok(promised.length >= 1500);
    const firstTimes = new Set<string>();
    const unique = back.messages.filter(({ id }) => !firstTimes.has(id) && firstTimes.add(id));
    for (const [id, texts] of Object.entries(byDevice(unique))) {
      const numbers = texts.map((text) => Number(text.split(',')[2]));
      t.strictSame(
        numbers,
        [...numbers].sort((a, b) => a - b),
        `in order: ${id}`,
      );
    }
    await third.stop('SIGTERM');
  },
);

t.end();
