import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { startReceiver } from '../../../bridges/receiver.ts';
import { freePort } from '../../../support/free-port.ts';
import { has, type Story } from '../story.ts';

export const bridges: Story = {
  goesOn: true,
  tell: async ({ t, next, skip, newcomer: sh, service }) => {
    const made: string[] = [];
    /** Makes the bridge of the next block, with texts of the page replaced. */
    const bridge = async (instead: Record<string, string> = {}) => {
      const text = Object.entries(instead).reduce((all, [from, to]) => all.replace(from, to), next());
      const [answer] = await sh.answers(text);
      made.push(answer.bridge.id);
      await sh.set({ BRIDGE: answer.bridge.id });
      return answer.bridge;
    };
    const receiver = await startReceiver(t);
    await sh.set({ URL: receiver.url });
    const webhook = await bridge();
    t.match(webhook, { kind: 'webhook', secret: String });
    const [{ channelTemplate }] = await sh.answers(next());
    t.match(channelTemplate, { name: 'alarms', streamBridgeDelivery: 2, persistenceType: 'simple' });
    const shape = next();
    const isGenuineFile = join(sh.directory, 'is-genuine.mjs');
    writeFileSync(isGenuineFile, next());
    const [{ bridge: withHeaders }] = await sh.answers(next().replace('…', 'of-the-receiver'));
    t.match(withHeaders, { headers: [{ name: 'Authorization' }, { name: 'X-Tenant' }], version: '2' });
    const test = next();
    t.match(await sh.answers(test), [{ test: { delivered: true } }]);
    const publish = next();
    await sh.run(publish);
    const [message] = (await receiver.received(2)).slice(1);
    t.strictSame(Object.keys(message ?? {}).sort(), (shape.match(/(?<=")\w+(?=")/g) ?? []).slice(1).sort());
    t.equal(Buffer.from(message?.payloadBase64 ?? '', 'base64').toString(), 'too hot');
    const { isGenuine } = await import(pathToFileURL(isGenuineFile).href);
    const { headers, body } = receiver.tries.at(-1) as (typeof receiver.tries)[0];
    t.match(headers, { authorization: 'Bearer of-the-receiver', 'x-tenant': 'fleet' });
    const signature = headers['platform-signature'];
    t.ok(isGenuine(webhook.secret, signature, body));
    t.notOk(isGenuine('another secret', signature, body));
    t.notOk(isGenuine(webhook.secret, signature, body.replace('alarms', 'alarm')));
    t.notOk(isGenuine(webhook.secret, signature, body, Date.now() / 1000 + 3600), 'not an old one');

    const printer = String(await freePort());
    const printing = await sh.start(next().replace('8080', printer));
    await printing.until(() =>
      fetch(`http://127.0.0.1:${printer}/`, { method: 'POST', body: 'heard' }).then(
        () => true,
        () => false,
      ),
    );
    await printing.said('heard');
    printing.stop();

    if (!has('nats-server')) skip(3, 'nats-server is not installed');
    else {
      const address = `127.0.0.1:${await freePort()}`;
      // As in a checkout.
      for (const name of ['node_modules', 'examples']) symlinkSync(join(process.cwd(), name), join(sh.directory, name));
      const server = await sh.start(`nats-server -a 127.0.0.1 -p ${address.split(':')[1]} -js -sd nats-data`);
      await server.said('Server is ready');
      await sh.run(next().replace('127.0.0.1:4222', address));
      t.match(await bridge({ 'tls://nats.example.com:4222': `nats://${address}` }), { kind: 'nats' });
      t.match(await sh.answers(test), [{ test: { delivered: true } }]);
      await sh.run(publish);
      const read = next().replace('127.0.0.1:4222', address);
      let stream = '';
      while (!stream.includes('too hot')) stream = await sh.run(read);
      t.match(stream, /^slipway\.[\w-]+\.d\.[\w-]+\.alarms too hot$/m);
      server.stop();
    }
    t.match(await bridge(), { kind: 'kafka' });
    t.match(await bridge(), { kind: 'kinesis' });
    if (!has('mosquitto')) skip(2, 'mosquitto is not installed');
    else {
      const port = String(await freePort());
      const broker = await sh.start(`mosquitto -p ${port}`);
      await broker.said('running');
      const credentials = ',"credentials":{"username":"slipway","password":"…"}';
      t.match(await bridge({ 'mqtts://mqtt.example.com:8883': `mqtt://127.0.0.1:${port}`, [credentials]: '' }), {
        kind: 'mqtt',
      });
      const listening = await sh.start(next().replace('1884', port));
      let tests = 0;
      while (!listening.output().includes('fleet/')) {
        tests += 1;
        t.match(await sh.answers(test), [{ test: { delivered: true } }], `test ${tests}`);
      }
      await sh.run(publish);
      await listening.said('too hot');
      listening.stop();
      broker.stop();
    }
    for (const id of made) {
      const { version } = (await service.ok('GET', `/api/v1/bridges/${id}`)).bridge;
      await service.ok('DELETE', `/api/v1/bridges/${id}`, { headers: { etag: version } });
    }
  },
};
