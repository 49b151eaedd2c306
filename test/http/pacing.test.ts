/** Many requests at once: they begin a few milliseconds at a time; accounts take turns, and strangers have one of them. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import Fastify from 'fastify';
import type { App } from '../../src/http/app.ts';
import { paceRequests } from '../../src/http/guards/pacing.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

/** An app that serves a request in 2 ms, and names whom it served. The account of a request is its token. */
async function servingSlowly() {
  const app = Fastify() as unknown as App;
  app.decorateRequest('address', {
    getter() {
      return this.ip;
    },
  });
  paceRequests(app, ({ headers }) => headers.authorization);
  const served: string[] = [];
  app.get('/', async ({ ip, headers }) => {
    const until = performance.now() + 2;
    while (performance.now() < until);
    served.push(headers.authorization ?? ip);
    return 'served';
  });
  await app.ready();
  return { app, served };
}

t.test('however many addresses strangers have, they get one turn, and so does each account', async (t) => {
  const { app, served } = await servingSlowly();
  const strangers = Array.from({ length: 100 }, (_, at) => app.inject({ url: '/', remoteAddress: `192.0.2.${at}` }));
  const ask = (authorization: string) =>
    app.inject({ url: '/', remoteAddress: '198.51.100.1', headers: { authorization } });
  const accounts = Array.from({ length: 10 }, (_, at) => ask(at % 2 ? 'one' : 'two'));
  await Promise.all([...strangers, ...accounts]);
  const last = Math.max(served.lastIndexOf('one'), served.lastIndexOf('two'));
  t.equal(served.length, 110);
  t.ok(last < 30, `the accounts were served ${last + 1} requests after the beginning, of 110`);
  await app.close();
});

t.test('a burst of requests of one address neither holds the event loop nor goes before another address', async (t) => {
  const app = Fastify() as unknown as App;
  app.decorateRequest('address', {
    getter() {
      return this.ip;
    },
  });
  paceRequests(app, () => undefined);
  const served: string[] = [];
  let [most, inThisTurn] = [0, 0];
  app.get('/', async ({ ip }) => {
    const until = performance.now() + 2;
    while (performance.now() < until);
    served.push(ip);
    inThisTurn += 1;
    return 'served';
  });
  await app.ready();
  let isOver = false;
  const counting = (async () => {
    while (!isOver) {
      inThisTurn = 0;
      await nextTurn();
      most = Math.max(most, inThisTurn);
    }
  })();
  const ask = (remoteAddress: string) => app.inject({ url: '/', remoteAddress });
  const burst = Array.from({ length: 100 }, () => ask('192.0.2.1'));
  const answers = await Promise.all([...burst, ask('192.0.2.2')]);
  isOver = true;
  await counting;
  t.ok(answers.every(({ statusCode }) => statusCode === 200));
  t.equal(served.length, 101);
  t.ok(served.indexOf('192.0.2.2') <= 8, `${served.indexOf('192.0.2.2')} of a burst of 100 were served first`);
  t.ok(most <= 6, `${most} requests of 2 ms were served in one turn of the event loop`);
  await app.close();
});

t.test('those that wait begin in each turn of the event loop', async (t) => {
  const app = Fastify() as unknown as App;
  app.decorateRequest('address', {
    getter() {
      return this.ip;
    },
  });
  paceRequests(app, () => undefined);
  let [turns, from, to] = [0, 0, 0];
  app.get('/', async () => {
    from ||= turns;
    to = turns;
    const until = performance.now() + 2;
    while (performance.now() < until);
    return 'served';
  });
  await app.ready();
  let isOver = false;
  const counting = (async () => {
    for (; !isOver; turns += 1) await nextTurn();
  })();
  await Promise.all(Array.from({ length: 40 }, () => app.inject({ url: '/' })));
  isOver = true;
  await counting;
  t.ok(to - from <= 14, `40 requests, of which at least four begin in a turn, took ${to - from} turns`);
  await app.close();
});

t.end();
