/**
 * Two accounts on one broker. While everybody else tries to hear one of them, to speak for it and to disturb it, it must be told
 * what it is told when all is quiet.
 */
import fc from 'fast-check';
import t, { type Test } from 'tap';
import {
  type Attack,
  type Attacker,
  attacksOf,
  foreignTopics,
  impostures,
  lookalikes,
  malformed,
  notUtf8,
  protocolErrors,
  type Target,
  wildcards,
} from '../broker/attacks.ts';
import {
  answerBytes,
  connectBytes,
  publishBytes,
  subscribeBytes,
  type Text,
  unsubscribeBytes,
} from '../broker/bytes.ts';
import { rawClient } from '../broker/raw.ts';
import { Victims } from '../broker/victims.ts';
import { type Service, startService } from '../support/service.ts';

/** Rounds of random programs: a number, because a time limit ends before the first round on a busy machine. */
const randomRounds = 6;
/** Connections of one attacker at a time. */
const atOnce = 8;
/** Seconds: a random program may end within a packet, and waits for this. */
const keepAlive = 3;

interface World {
  service: Service;
  victims: Victims;
  quiet: unknown;
  target: Target;
  /** The token of another account, for anyone who has none. */
  token: string;
  attackers: Attacker[];
}

let world: World;

t.before(async () => {
  world = await begin(t);
});

/** A device in an organization, and a person of that organization. */
async function household(service: Service, accountId: string, token: string, deviceTemplateId: string) {
  const organization = await service.create('/organizations', 'organization', { accountId, name: 'Home' }, token);
  const about = { accountId, organizationId: organization.id };
  const device = await service.create(
    '/devices',
    'device',
    { ...about, deviceTemplateId, serialNumber: service.unique('SN') },
    token,
  );
  const credential = { accountId, entityId: device.id, entityType: 'device' };
  const { secret } = await service.create('/access/mqtt-credentials', 'mqttCredential', credential, token);
  const idmUserEmail = `${service.unique('user').replace(' ', '')}@example.com`;
  const person = { createIdmUser: true, idmUserEmail, idmUserPassword: 'a long enough secret' };
  const endUser = await service.create('/end-users', 'endUser', { ...about, ...person }, token);
  const { jwt } = await service.loginAs(idmUserEmail, person.idmUserPassword, accountId);
  return { device, secret, endUser, jwt };
}

async function begin(t: Test): Promise<World> {
  // Nobody is to be saved by having been refused too often.
  const service = await startService(t, {
    env: {
      SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '0',
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0',
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '0',
      SLIPWAY_MQTT_MAX_CONNECTIONS_PER_PRINCIPAL: '0',
      SLIPWAY_MQTT_MAX_CONNECTIONS_PER_DEVICE: '0',
    },
  });
  const { accountId, admin } = service;
  const root = service.topicRoot;
  const other = await service.account();
  const token = other.admin;

  const templates: string[] = [];
  for (const [account, jwt] of [
    [accountId, admin],
    [other.accountId, token],
  ] as const) {
    const about = { accountId: account, name: service.unique('Template') };
    const template = await service.create('/devices/templates', 'deviceTemplate', about, jwt);
    for (const [name, persistenceType] of [
      ['chat', 'simple'],
      ['temperature', 'timeSeries'],
    ] as const) {
      const channel = {
        accountId: account,
        entityId: template.id,
        entityType: 'deviceTemplate',
        name,
        persistenceType,
      };
      await service.create('/channels/templates', 'channelTemplate', channel, jwt);
    }
    templates.push(template.id);
  }
  const [template, otherTemplate] = templates as [string, string];
  const home = await household(service, accountId, admin, template);
  const neighbours = await household(service, accountId, admin, template);
  const strangers = await household(service, other.accountId, token, otherTemplate);

  const victims = await Victims.begin(t, service, home.device, home.secret, home.jwt);
  const user = (name: string, jwt: string) => ({ name, login: { username: 'Auth:JWT', password: jwt } });
  const device = (name: string, { device, secret }: typeof home) => ({
    name,
    login: { username: device.id as string, password: secret as string },
  });
  const own = { accountId, own: `${root}/${accountId}/d/${neighbours.device.id}/chat` };
  const foreign = { accountId: other.accountId, own: `${root}/${other.accountId}/d/${strangers.device.id}/chat` };
  const { accountUsers } = await service.ok('GET', `/api/v1/account-users?accountId=${accountId}`);
  const people = [home.endUser, accountUsers.results[0]];
  return {
    service,
    victims,
    quiet: await victims.round(),
    token,
    target: {
      root,
      accountId,
      deviceId: home.device.id,
      clientId: victims.clientId,
      principals: [home.device.id, ...people.flatMap(({ id, userId }) => [id, userId])],
    },
    attackers: [
      { ...device('a device of the other account', strangers), ...foreign },
      { ...user('an end-user of the other account', strangers.jwt), ...foreign },
      { ...user('an admin of the other account', token), ...foreign },
      { ...device('a device of another organization', neighbours), ...own },
      { ...user('an end-user of another organization', neighbours.jwt), ...own },
    ],
  };
}

/** One connection of an attacker: sends everything and waits until it is answered or has ended. What it heard. */
async function attempt(t: Test, { login }: Attacker, { connect, send }: Attack): Promise<string[]> {
  const client = await rawClient(t, world.service.server.mqttPort);
  const fields = { clientId: world.target.clientId, keepAlive, ...login, ...connect };
  const ping = Buffer.from([0xc0, 0]);
  client.send(connectBytes(fields));
  const topics: string[] = [];
  try {
    for (const packet of [Buffer.alloc(0), ...send, ping]) {
      client.send(packet, ping);
      for (let answered = false; !answered; ) {
        const heard = await client.next();
        if (heard.cmd === 'publish') topics.push(heard.topic);
        answered = heard.cmd === 'pingresp';
      }
    }
  } catch {
    // It was thrown out.
  }
  client.socket.destroy();
  await client.closed;
  return topics;
}

/** Whether a message on this topic is none of the attacker's business. */
function isLeaked({ own }: Attacker, topic: string): boolean {
  return !topic.startsWith(own.slice(0, -'chat'.length));
}

/** Lets the attackers work while the victims do what they always do; what went wrong. */
async function attacked(work: () => Promise<string[]>): Promise<void> {
  let done = false;
  const working = work().finally(() => {
    done = true;
  });
  const rounds: unknown[] = [];
  while (!done) rounds.push(await world.victims.round());
  rounds.push(await world.victims.round());
  const leaked = await working;
  if (leaked.length > 0) throw new Error(`heard what is not its own: ${leaked.join(', ')}`);
  for (const round of rounds) {
    if (JSON.stringify(round) === JSON.stringify(world.quiet)) continue;
    throw new Error(`disturbed: ${JSON.stringify(round, null, 1)}\nquiet: ${JSON.stringify(world.quiet, null, 1)}`);
  }
}

t.test('two quiet rounds are the same', async (t) => {
  t.same(await world.victims.round(), world.quiet);
  const { sensor, phone, desk, absent } = world.quiet as Record<string, { messages: string[] }>;
  const texts = ['kept', '20.5', '21.5', '22.5', 'hello', 'an order', 'last words', 'end'];
  for (const one of [sensor, phone, desk])
    t.same(
      one?.messages.filter((line) => !line.includes('retained')).map((line) => line.replace(/^\S+ (.*) \d$/, '$1')),
      texts,
    );
  t.same(
    absent?.messages.map((line) => line.split(' ')[1]),
    ['kept', 'an', 'last'],
  );
});

for (const [place, name] of [
  'a device of the other account',
  'an end-user of the other account',
  'an admin of the other account',
  'a device of another organization',
  'an end-user of another organization',
].entries())
  t.test(`${name} hears nothing of others and disturbs nobody`, async (t) => {
    const attacker = world.attackers[place] as Attacker;
    t.equal(attacker.name, name);
    await attacked(async () => {
      const attacks = attacksOf(attacker, world.target);
      const leaked: string[] = [];
      // Those of one stored session are in their order; the rest go on next to them.
      const [ordered, others] = [true, false].map((isStored) =>
        attacks.filter(({ connect }) => (connect.flags === 0) === isStored),
      );
      const worker = async (queue: Attack[]) => {
        for (let next = queue.shift(); next; next = queue.shift()) {
          const topics = await attempt(t, attacker, next);
          leaked.push(
            ...topics.filter((topic) => isLeaked(attacker, topic)).map((topic) => `${topic} (${next?.title})`),
          );
        }
      };
      await Promise.all([
        worker(ordered as Attack[]),
        ...Array.from({ length: atOnce }, () => worker(others as Attack[])),
      ]);
      return leaked;
    });
  });

t.test('anyone who has no credential of its own is let in nowhere', async (t) => {
  const { target, service, token } = world;
  const attacker = world.attackers[0] as Attacker;
  await attacked(async () => {
    const strange: string[] = [];
    const queue = impostures(attacker.login, target, token);
    const worker = async () => {
      for (let next = queue.shift(); next; next = queue.shift()) {
        const client = await rawClient(t, service.server.mqttPort);
        client.send(connectBytes(next), subscribeBytes(1, ['#']), Buffer.from([0xc0, 0]));
        const answers = [];
        try {
          for (;;) answers.push(await client.next());
        } catch {
          // It has ended, as it must.
        }
        const isLetIn = answers.some(
          ({ cmd, ...said }) => cmd !== 'connack' || (said as { returnCode?: number }).returnCode === 0,
        );
        if (isLetIn) strange.push(JSON.stringify(next));
      }
    };
    await Promise.all(Array.from({ length: atOnce }, worker));
    for (const packet of [...protocolErrors(attacker.own), publishBytes(attacker.own, 'x'), subscribeBytes(1, ['#'])]) {
      const client = await rawClient(t, service.server.mqttPort);
      client.send(packet);
      client.socket.end();
      await client.closed;
    }
    return strange;
  });
});

t.test('nor do random programs of packets', async (t) => {
  const seed = Date.now() % 2 ** 31;
  t.comment(`seed ${seed}`);
  const { target, attackers } = world;
  const topic = (own: string): fc.Arbitrary<Text> => {
    const known = [own, ...foreignTopics(target, own), ...wildcards(target), ...lookalikes(target)];
    const level = fc.constantFrom(...known.flatMap((one) => one.split('/')), '', '+', '#', '$SYS', '\0', '\uD800');
    const joined = fc.array(level, { minLength: 1, maxLength: 8 }).map((levels) => levels.join('/'));
    const bytes = fc.uint8Array({ maxLength: 20 }).map((array) => Buffer.from(array));
    const odd = fc.constantFrom<Text>(...malformed(target).filter(({ length }) => length < 1000), ...notUtf8);
    return fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom<Text>(...known) },
      { weight: 3, arbitrary: joined },
      odd,
      bytes,
    );
  };
  const packet = (own: string): fc.Arbitrary<Buffer> => {
    const [id, text, payload] = [
      fc.integer({ min: 0, max: 12 }),
      topic(own),
      fc.constantFrom('', '1', 'forged', '{"state":{"name":"x"}}'),
    ];
    return fc.oneof(
      { weight: 4, arbitrary: fc.tuple(text, payload, fc.nat({ max: 15 }), id).map((given) => publishBytes(...given)) },
      {
        weight: 4,
        arbitrary: fc
          .tuple(id, fc.array(text, { maxLength: 4 }), fc.nat({ max: 3 }))
          .map((given) => subscribeBytes(...given)),
      },
      {
        weight: 1,
        arbitrary: fc.tuple(id, fc.array(text, { maxLength: 4 })).map((given) => unsubscribeBytes(...given)),
      },
      {
        weight: 2,
        arbitrary: fc.tuple(fc.constantFrom(0x40, 0x50, 0x62, 0x70), id).map((given) => answerBytes(...given)),
      },
      { weight: 1, arbitrary: fc.uint8Array({ maxLength: 12 }).map((array) => Buffer.from(array)) },
    );
  };
  const program = fc.nat({ max: attackers.length - 1 }).chain((place) => {
    const { own } = attackers[place] as Attacker;
    const will = fc.option(fc.record({ topic: topic(own), payload: fc.constantFrom<Text>('', 'x') }), {
      freq: 3,
      nil: undefined,
    });
    const flags = fc.nat({ max: 63 }).map((bits) => bits & ~4);
    const clientId = fc.constantFrom(target.clientId, `${target.accountId}/${target.deviceId}/same`, '__proto__');
    return fc.record({
      place: fc.constant(place),
      will,
      flags,
      clientId,
      send: fc.array(packet(own), { maxLength: 12 }),
    });
  });
  let programs = 0;
  const harmless = fc.asyncProperty(fc.array(program, { minLength: 1, maxLength: 4 }), async (all) => {
    await attacked(async () => {
      programs += all.length;
      const leaks = all.map(async ({ place, will, flags, clientId, send }) => {
        const attacker = attackers[place] as Attacker;
        // A will without its flags is one that is left out.
        const connect = will ? { clientId, will, flags } : { clientId, flags: flags & 2 };
        const topics = await attempt(t, attacker, { title: 'random', connect, send });
        return topics.filter((topic) => isLeaked(attacker, topic));
      });
      return (await Promise.all(leaks)).flat();
    });
  });
  await fc.assert(harmless, { seed, numRuns: randomRounds });
  t.comment(`${programs} programs`);
  t.ok(programs > 0);
});

t.test('what is stored of the victims is what they have said, and nobody was cut off', async (t) => {
  const { service, target, victims } = world;
  const { device } = await service.ok('GET', `/api/v1/devices/${target.deviceId}`);
  t.match(device, { connected: true, name: null });
  const { result } = await service.ok('GET', `/api/v4/data/${victims.topic('temperature')}/latest?pageSize=1000`);
  const values = new Set(result.map(({ numericValue }) => numericValue));
  t.same([...values].sort(), [20.5, 21.5, 22.5]);
  const { logs } = await service.ok('GET', `/api/v1/devices/${target.deviceId}/logs?pageSize=1000`);
  const messages = new Set(logs.results.map(({ message }) => message));
  t.same([...messages].sort(), ['connected', 'hello']);
  t.same(logs.results.filter(({ message }) => message === 'connected').length, 1);
});
