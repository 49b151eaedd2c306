/** What logins cost others, and whether their time tells who exists. The server is a process of its own. */
import { at, described, type Row } from './figures.ts';
import type { Bench } from './sizes.ts';

const atOnce = 100;
/** The longest that a request of somebody else may take while so many log in, p99 in milliseconds. */
const figure = 200;
const admin = { emailAddress: 'bench@bench.example', password: 'a password of the bench' };

export async function measureLogins({ size, directory, serve }: Bench): Promise<Row[]> {
  const accountId = '00000000-0000-7000-8000-00000000b0b0';
  const server = await serve(await directory(0), {
    SLIPWAY_ACCOUNT_ID: accountId,
    SLIPWAY_ADMIN_EMAIL: admin.emailAddress,
    SLIPWAY_ADMIN_PASSWORD: admin.password,
    SLIPWAY_LOGIN_FAILURES_PER_IDENTITY: '0',
    SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '0',
  });
  try {
    const { url } = server;
    const login = async (body: object) => {
      const response = await fetch(`${url}/auth/login-user`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...admin, accountId, ...body }),
      });
      return (await response.json()) as { jwt?: string };
    };
    const telling = await measureTelling(login, 3 * size.asks);
    const { jwt } = await login({});
    const list = () => fetch(`${url}/devices?accountId=${accountId}`, { headers: { authorization: `Bearer ${jwt}` } });
    return [telling, await measureOthers(login, list)];
  } finally {
    await server.stop();
  }
}

/** The time of each kind of failure; the kinds take turns in any order, so that noise is the same for all. */
async function measureTelling(login: (body: object) => Promise<unknown>, tries: number): Promise<Row> {
  const kinds = {
    'unknown email': { emailAddress: 'nobody@bench.example' },
    'wrong password': { password: 'another password' },
    'wrong account': { accountId: '00000000-0000-7000-8000-000000000000' },
  };
  const times = new Map<string, number[]>(Object.keys(kinds).map((name) => [name, []]));
  for (let n = -5; n < tries; n += 1)
    for (const [name, body] of Object.entries(kinds).sort(() => Math.random() - 0.5)) {
      const from = performance.now();
      await login(body);
      if (n >= 0) times.get(name)?.push(performance.now() - from);
    }
  console.log(`\nFailed logins, ${tries} tries of each kind\n`);
  for (const [name, taken] of times) console.log(`  ${name.padEnd(15)} ${described(taken)}`);
  const medians = [...times.values()].map((taken) => at(taken, 0.5));
  const ours = Math.max(...medians) - Math.min(...medians);
  return { what: 'Failed logins: how far the medians of their kinds lie apart', ours, unit: 'ms' };
}

/** What somebody else's requests take, alone and while many log in at once. */
async function measureOthers(login: (body: object) => Promise<unknown>, list: () => Promise<Response>): Promise<Row> {
  const ask = async (until: () => boolean): Promise<number[]> => {
    const times: number[] = [];
    while (!until()) {
      const from = performance.now();
      await (await list()).arrayBuffer();
      times.push(performance.now() - from);
    }
    return times;
  };
  let left = 500;
  const alone = await ask(() => left-- === 0);
  let open = true;
  const from = performance.now();
  const logins = Promise.all(Array.from({ length: atOnce }, () => login({}))).then(() => {
    open = false;
  });
  const meanwhile = await ask(() => !open);
  await logins;
  console.log(`\nGET /devices for somebody else\n`);
  console.log(`  alone                  ${described(alone)}`);
  const seconds = ((performance.now() - from) / 1000).toFixed(1);
  console.log(`  next to ${atOnce} logins      ${described(meanwhile)}  (all logged in after ${seconds} s)`);
  return {
    what: `GET /devices next to ${atOnce} logins, p99`,
    ours: at(meanwhile, 0.99),
    unit: 'ms',
    peer: { name: 'alone', value: at(alone, 0.99) },
    figure: { below: figure },
  };
}
