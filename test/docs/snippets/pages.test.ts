/** Every block and every command of the pages is run, or a table says why it is not and what is checked instead. */
import type { Test } from 'tap';
import { certificate } from '../../broker/certificate.ts';
import { Mailbox } from '../../support/mailbox.ts';
import { part } from '../../support/part.ts';
import { adminEmail, adminPassword, Service, startService } from '../../support/service.ts';
import { checkWords, elsewhere } from './elsewhere.ts';
import { type Block, blocksOf, pages, wordsOf } from './pages.ts';
import { Shell, type ShellOptions } from './shell.ts';
import { stories } from './stories/index.ts';
import type { Secure, Told } from './story.ts';

const t = await part(import.meta);

const mailbox = new Mailbox();
let service: Service;
let newcomer: Shell;
let started: Promise<Secure> | undefined;
t.before(async () => {
  service = await startService(t, { mail: mailbox, env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  newcomer = new Shell(t, { instead: addresses() });
});

/** The addresses that pages name, and those of the service. */
function addresses(): Record<string, string> {
  const { url, mqttPort } = service.server;
  return {
    '127.0.0.1:3000': new URL(url).host,
    '127.0.0.1:1883': `127.0.0.1:${mqttPort}`,
    '-h 127.0.0.1 -p 1883': `-h 127.0.0.1 -p ${mqttPort}`,
  };
}

async function startSecure(): Promise<Secure> {
  const env = certificate(t);
  const secure = await startService(t, { env });
  return {
    service: secure,
    caFile: env.SLIPWAY_TLS_CERT ?? '',
    mqttsPort: secure.mqttsPort,
  };
}

/** The same service with an account of its own. */
async function inAnotherAccount() {
  const { accountId, admin, ...login } = await service.account();
  const other = new Service(service.server, service.directory, service.secrets);
  return { service: Object.assign(other, { accountId, admin }), ...login };
}

/** Tells the story of a page: the blocks that it has left. */
async function tell(t: Test, page: string, blocks: Block[]): Promise<Block[]> {
  const left = [...blocks];
  const story = stories[page];
  if (!story) return left;
  const account = story.goesOn ? { service, email: adminEmail, password: adminPassword } : await inAnotherAccount();
  const told: Told = {
    t,
    ...account,
    mailbox,
    newcomer,
    next: () => {
      const block = left.shift();
      if (!block) throw new Error(`${page} has no other block.`);
      return block.text;
    },
    skip: (count, reason) => t.comment(`Not run: ${left.splice(0, count).map(place).join(', ')}: ${reason}.`),
    secure: () => {
      started ??= startSecure();
      return started;
    },
    shell: ({ instead, ...options }: ShellOptions = {}) =>
      new Shell(t, { ...options, instead: { ...addresses(), ...instead } }),
  };
  await story.tell(told);
  return left;
}

const place = ({ page, line }: { page: string; line: number }) => `${page}:${line}`;
const unused = new Set(elsewhere);

for (const page of pages) {
  const blocks = blocksOf(page);
  if (blocks.length === 0) continue;
  t.test(`every block of ${page} is run, or the table says why not`, async (t) => {
    const toRun = blocks.filter((block) => {
      const row = elsewhere.find((one) => one.page === page && block.text.includes(one.has));
      if (!row) return true;
      unused.delete(row);
      row.check(block.text);
      return false;
    });
    t.strictSame((await tell(t, page, toRun)).map(place), [], 'blocks that nobody runs');
  });
}

t.test('the table of what is not run names no block that is gone', async (t) => {
  t.strictSame(
    [...unused].map(({ page, has }) => `${page}: ${has}`),
    [],
  );
});

t.test('every command within a sentence is one that exists', async (t) => {
  for (const page of pages)
    for (const { line, text } of wordsOf(page)) {
      const wrong = checkWords(text);
      if (wrong) t.fail(`${page}:${line}: ${text}: ${wrong}`);
    }
});

t.end();
