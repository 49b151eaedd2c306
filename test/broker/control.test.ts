/** The control topics of a device, which nobody else can use. */
import { EventEmitter, once } from 'node:events';
import { pino } from 'pino';
import { newLiveClient } from '../../broker/connections/live-clients.ts';
import { ControlTopics } from '../../broker/control.ts';
import { Reports } from '../../broker/ingest/reports.ts';
import { failure } from '../../src/core/errors.ts';
import { controlTopic } from '../../src/core/topics.ts';
import type { ControlService, Rejection } from '../../src/ports/broker-ports.ts';
import { codec } from '../firmware/board.ts';
import { publish, rollOut, rollout } from '../firmware/fleet.ts';
import { whileRegistryFails } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import { connected, subscribed } from './conversation.ts';
import { type Fixture, fixture, fixtureIn, rawConnected, sibling, stored } from './fixture.ts';
import { connectPacket, publishPacket, rawClient } from './raw.ts';

const t = await part(import.meta);

/** Has the service something to say on the control topic of a device that listens. */
async function offerFirmware({ service, device }: Fixture): Promise<{ id: string }> {
  const firmware = await publish(service, device.deviceTemplateId, '2.0');
  return rollOut(service, firmware, { target: { deviceIds: [device.id] } });
}

t.test('a device subscribes to its cln and publishes to its svc; nobody else can use them', async (t) => {
  const f = await fixture(t, { SLIPWAY_CONTROL_ROOT: 'board/ctrl' });
  const other = await sibling(f);
  const [cln, svc] = [controlTopic('board/ctrl', f.device.id, 'cln'), controlTopic('board/ctrl', f.device.id, 'svc')];
  const device = await rawConnected(t, f);
  t.same(await subscribed(device, [cln, 1], [svc, 1], ['board/ctrl/#', 1], [`${cln}/x`, 1]), [1, 128, 128, 128]);
  const stranger = await rawConnected(t, other);
  t.same(await subscribed(stranger, [cln, 1], [svc, 1]), [128, 128]);
  const admin = await rawClient(t, f.service.server.mqttPort);
  admin.send(connectPacket({ username: 'Auth:JWT', password: Buffer.from(f.service.admin), clientId: 'admin' }));
  t.match(await admin.next(), { returnCode: 0 });
  t.same(await subscribed(admin, [cln, 1], [svc, 1], ['#', 1]), [128, 128, 1]);

  device.send(publishPacket(svc, 'junk', { qos: 1, messageId: 5 }), publishPacket(svc, '', { retain: true }));
  t.match(await device.next(), { cmd: 'puback', messageId: 5 });
  await offerFirmware(f);
  t.match(await device.next(), { cmd: 'publish', topic: cln, qos: 1, retain: false });

  for (const client of [stranger, admin])
    client.send(
      publishPacket(svc, 'forged', { qos: 1, messageId: 6 }),
      publishPacket(cln, 'forged', { qos: 1, messageId: 7 }),
    );
  device.send(publishPacket(cln, 'forged', { qos: 1, messageId: 8 }), publishPacket(f.topic('temperature'), ',a,1,'));
  t.match(await device.next(), { cmd: 'puback', messageId: 8 }, 'and the device hears nothing of what was forged');
  const heard: Array<string | number> = [];
  while (heard.length < 6) {
    const packet = await admin.next();
    const one = packet.cmd === 'publish' ? packet.topic : (packet.messageId as number);
    // That devices have connected comes at some time.
    if (!String(one).endsWith('/_updates/fields')) heard.push(one);
  }
  t.same(new Set(heard), new Set([6, 7, f.topic('_rejected'), other.topic('_rejected'), f.topic('temperature')]));
  // QoS 0 is passed on before it is stored.
  await until(async () => (await stored(f)).length > 0);
  t.same(await stored(f), [1]);
});

t.test(
  'a stored session keeps no control messages: the service offers its work again at each connection',
  async (t) => {
    const f = await fixtureIn(await sharedService(t));
    const where = { mqttPort: f.service.server.mqttPort } as Parameters<typeof connected>[1];
    const who = { clientId: 'board', clean: false };
    const before = await connected(t, where, f, who);
    const cln = controlTopic(f.service.controlRoot, f.device.id, 'cln');
    t.same(await subscribed(before, [cln, 1]), [1]);
    await offerFirmware(f);
    t.match(await before.next(), { cmd: 'publish', topic: cln, qos: 1 }, 'it is not acknowledged');
    before.socket.destroy();
    await before.closed;
    const after = await connected(t, where, f, who);
    t.equal(after.sessionPresent, true);
    after.send({ cmd: 'pingreq' });
    t.match(await after.next(), { cmd: 'pingresp' }, 'nothing comes from the queue');
  },
);

t.test(
  'a status that cannot be written is not acknowledged, and is taken when the device sends it again',
  async (t) => {
    const f = await fixture(t);
    const { service, device } = f;
    const [cln, svc] = [
      controlTopic(service.controlRoot, device.id, 'cln'),
      controlTopic(service.controlRoot, device.id, 'svc'),
    ];
    const board = await rawConnected(t, f);
    t.same(await subscribed(board, [cln, 1]), [1]);
    const { id } = await offerFirmware(f);
    t.match(await board.next(), { cmd: 'publish', topic: cln }, 'an update is offered');
    const downloaded = codec.encode({ msgtype: 4, msgver: 1, N: 'app.bin', R: '2.0', P: 3, S: 0 });
    await whileRegistryFails(service, 'transaction', new Error('disk I/O error'), async () => {
      board.send(publishPacket(svc, downloaded), publishPacket(svc, 'junk', { qos: 1, messageId: 6 }));
      t.match(await board.next(), { cmd: 'puback', messageId: 6 }, 'at QoS 0 it is lost, and the connection stays');
      board.send(publishPacket(svc, downloaded, { qos: 1, messageId: 7 }));
      await t.rejects(board.next(), 'no PUBACK: the connection ends');
    });
    t.match(await rollout(service, id), { counts: { downloaded: 0 } });
    const { refusals } = await service.ok('GET', `/api/v1/devices/${device.id}/refusals`);
    t.match(refusals.results[0], { topic: svc, code: -199, reason: 'The message could not be stored.' });

    const again = await rawConnected(t, f);
    again.send(publishPacket(svc, downloaded, { qos: 1, messageId: 7, dup: true }));
    t.match(await again.next(), { cmd: 'puback', messageId: 7 });
    t.match(await rollout(service, id), { counts: { downloaded: 1 } });
  },
);

t.test('the service answers control messages in order, and each with its own outcome', async (t) => {
  const answers: Array<(answer: Promise<Rejection | undefined> | Rejection) => void> = [];
  const said: string[] = [];
  const control: ControlService = {
    takeMessage: (_, payload) => {
      said.push(payload.toString());
      return new Promise((resolve) => answers.push(resolve));
    },
    listening: () => {
      throw new Error('broken');
    },
  };
  const services = { config: { controlRoot: 'c' }, control, log: pino({ level: 'silent' }) };
  const topics = new ControlTopics(services as never, new Reports());
  const live = newLiveClient({} as never, 'board', { address: undefined });
  const done = new EventEmitter();
  const order: unknown[] = [];
  for (const payload of ['one', 'two']) {
    topics.take(live, { accountId: 'a', deviceId: 'x' }, Buffer.from(payload), (rejection, fault) => {
      order.push([payload, rejection?.message, fault?.message]);
      if (order.length === 2) done.emit('both');
    });
  }
  await Promise.resolve();
  t.same(said, ['one', 'two']);
  answers[1]?.(Promise.reject(new Error('broken')));
  answers[0]?.(failure('invalid', { message: 'not CBOR' }));
  await once(done, 'both');
  t.same(order, [
    ['one', 'not CBOR', undefined],
    ['two', undefined, 'broken'],
  ]);
  t.doesNotThrow(() => topics.listening({ accountId: 'a', deviceId: 'x' }));
});

t.end();
