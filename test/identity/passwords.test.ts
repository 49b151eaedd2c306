/** The policy of passwords on every way on which one can be set. */
import { execFile } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { dictionary } from '@zxcvbn-ts/language-common';
import { Passwords } from '../../src/identity/secrets/passwords.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { cliFile, inherited, plainNode, startProcess } from '../support/process.ts';
import { refusedStart } from '../support/refused-start.ts';
import { type Answer, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);
const run = promisify(execFile);

const mailbox = new Mailbox();
let service: Service;
t.before(async () => {
  service = await startService(t, { mail: mailbox });
});

const post = (path: string, body: object, headers: Record<string, string> = {}, token: string | null = service.admin) =>
  service.http('POST', `/api/v1${path}`, { body: { accountId: service.accountId, ...body }, headers, token });

/** A request that sets a password, and the property that it is in. */
type Way = [property: string, set: (email: string, password: string) => Promise<Answer>];

/** Every way over HTTP; the person has the address `email` afterwards, or had it before. */
const ways: Record<string, () => Promise<Way>> = {
  'creating an end-user': async () => {
    const { id: organizationId } = await service.organization();
    const body = { organizationId, createIdmUser: true };
    return [
      'idmUserPassword',
      (idmUserEmail, idmUserPassword) => post('/end-users', { ...body, idmUserEmail, idmUserPassword }),
    ];
  },
  'making an admin': async () => [
    'idmUserPassword',
    (idmUserEmail, idmUserPassword) => post('/account-users', { createIdmUser: true, idmUserEmail, idmUserPassword }),
  ],
  registering: async () => {
    const { appToken } = await service.create('/applications', 'application', { name: 'phone', kind: 'endUserApp' });
    return [
      'password',
      (emailAddress, password) =>
        post('/auth/create-user', { emailAddress, password }, { accesstoken: appToken }, null),
    ];
  },
  'a reset': async () => [
    'newPassword',
    async (email, newPassword) => {
      const body = { createIdmUser: true, idmUserEmail: email };
      const { userId } = await service.create('/account-users', 'accountUser', body);
      const change = { newPassword, passwordResetToken: mailbox.tokenTo(email) };
      return post(`/users/${userId}/change-password-with-token`, change, {}, null);
    },
  ],
  'a change': async () => [
    'newPassword',
    async (email, newPassword) => {
      const oldPassword = 'the former one of these';
      const body = { createIdmUser: true, idmUserEmail: email, idmUserPassword: oldPassword };
      const { userId } = await service.create('/account-users', 'accountUser', body);
      return post('/profile/change-password', { userId, oldPassword, newPassword });
    },
  ],
};

const bad = (email: string): Record<string, string> => ({
  'seven characters': 'sevench',
  'seven characters that are fourteen units': '😀😁😂😃😄😅😆',
  'eight that NFKC makes seven': 'seven\u0065\u0301x',
  '257 characters': 'abcdefgh'.repeat(32).concat('x'),
  'the email address': `my ${email.toUpperCase()} word`,
  'the email address in wide letters': `my ${email.replace('@', '＠')} word`,
  'a character four times': 'fouuuur in a row',
  'a character four times, once NFKC has been there': 'fouuuｕr in a row',
  'a common one': 'trustno1',
  'a common one in capitals': 'TRUSTNO1',
  'a common one in wide letters': 'ｔｒｕｓｔｎｏ１',
});
const good = ['trustno1 nor you', 'three in a rooow', '😀😁😂😃😄😅😆😇', 'x1'.repeat(128), '密码是一个很长的词'];

for (const [name, prepare] of Object.entries(ways))
  t.test(`the policy holds for ${name}`, async (t) => {
    const [path, set] = await prepare();
    const person = () => `${service.unique('p').replace(' ', '')}@example.com`;
    for (const what of Object.keys(bad(''))) {
      const email = person();
      const answer = await set(email, bad(email)[what] ?? '');
      t.equal(answer.status, 400, what);
      t.match(answer.body.attributes?.details ?? answer.body.error.details, [{ path }], what);
    }
    for (const password of good) {
      const email = person();
      t.match(await set(email, password), { status: 200 }, password);
      t.ok((await service.loginAs(email, password.normalize('NFKD'))).jwt, 'and opens, however it is composed');
    }
  });

t.test('a password is stored as argon2id with 19 MiB and two passes', async (t) => {
  const stored = await new Passwords().hashNew('password', 'correct horse battery', 'x@example.com');
  t.match(stored, /^\$argon2id\$v=19\$m=19456,p=1,t=2\$/);
});

t.test('every one of the 10,000 most common is refused', async (t) => {
  const passwords = new Passwords();
  const common = dictionary['passwords-common'].slice(0, 10_000);
  t.ok(common.includes('password') && common.includes('iloveyou'), 'this is the list');
  const letThrough: string[] = [];
  for (const password of common) {
    const refused = await passwords.hashNew('password', password, 'x@example.com').then(
      () => false,
      () => true,
    );
    if (!refused) letThrough.push(password);
  }
  t.strictSame(letThrough, []);
});

t.test('the first account and the command line keep to it too', async (t) => {
  const directory = temporaryDirectory(t);
  const first = await refusedStart(directory, { SLIPWAY_ADMIN_PASSWORD: 'trustno1' });
  t.match(first, /SLIPWAY_ADMIN_PASSWORD must not be one of the most common/);
  const create = ['account', 'create', '--name', 'N', '--admin-email', 'a@example.com', '--data-dir', directory];
  const second = await runCommand([...create, '--admin-password', 'TrustNo1']);
  t.equal(second.code, 2);
  t.match(second.stderr, /adminPassword must not be one of the most common/);
  t.equal((await runCommand(create)).code, 0, 'a generated one is fine');
});

t.test('the password of an admin comes from a file or standard input', async (t) => {
  const directory = temporaryDirectory(t);
  const file = join(directory, 'password');
  const dataDir = join(directory, 'data');
  const create = ['account', 'create', '--name', 'N', '--data-dir', dataDir, '--admin-email'];
  writeFileSync(file, 'a secret in a file\n');
  const made = await runCommand([...create, 'a@example.com', '--admin-password-file', file]);
  t.match(JSON.parse(made.stdout), { adminPassword: 'a secret in a file' });
  // As people type: it comes when the command waits for it already.
  const typing = '{ sleep 1; printf "typed in\\r\\n"; } | exec "$@"';
  const command = [...plainNode, cliFile, ...create, 'b@example.com', '--admin-password-file', '-'];
  const { stdout } = await run('sh', ['-c', typing, 'sh', 'env', ...command], { env: inherited });
  t.match(JSON.parse(stdout), { adminPassword: 'typed in' });
  writeFileSync(file, 'two\nlines\n');
  for (const [more, sentence] of [
    [['--admin-password-file', file], /--admin-password-file must hold one line, the password/],
    [
      ['--admin-password-file', join(directory, 'none')],
      /--admin-password-file names a file that cannot be read: .*ENOENT/,
    ],
    [
      ['--admin-password-file', file, '--admin-password', 'x'],
      /Give one of --admin-password and --admin-password-file/,
    ],
  ] as const)
    t.match(await runCommand([...create, 'c@example.com', ...more]), { code: 2, stderr: sentence });
});

t.test('the first start reads the password from SLIPWAY_ADMIN_PASSWORD_FILE, and no later one does', async (t) => {
  const directory = temporaryDirectory(t);
  const file = join(directory, 'password');
  const env = { SLIPWAY_DATA_DIR: join(directory, 'data'), SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
  const named = { ...env, SLIPWAY_ADMIN_PASSWORD_FILE: file };
  const refused = (more = {}) => refusedStart(env.SLIPWAY_DATA_DIR, { ...named, ...more });
  t.match(await refused(), /SLIPWAY_ADMIN_PASSWORD_FILE names a file that cannot be read/);
  const both = await refused({ SLIPWAY_ADMIN_PASSWORD: 'a long enough secret' });
  t.match(both, /SLIPWAY_ADMIN_PASSWORD_FILE and SLIPWAY_ADMIN_PASSWORD are both set/);
  writeFileSync(file, 'short\n');
  t.match(await refused(), /SLIPWAY_ADMIN_PASSWORD_FILE must have 8 to 256 characters/);
  t.notOk(existsSync(env.SLIPWAY_DATA_DIR), 'a start that fails leaves nothing');
  writeFileSync(file, 'a secret in a file\n');
  const settings = { SLIPWAY_ADMIN_PASSWORD: undefined, SLIPWAY_ADMIN_PASSWORD_FILE: file };
  const server = await startProcess(t, env.SLIPWAY_DATA_DIR, settings);
  const [, accountId] = /account\s+(\S{36})/.exec(server.output()) ?? [];
  t.match(server.output(), `"password":"'"$(cat ${file})"'"`, 'its commands can be pasted');
  t.notMatch(server.output(), 'a secret in a file');
  const login = await fetch(`${server.url}/api/v1/auth/login-user`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ accountId, emailAddress: 'admin@example.com', password: 'a secret in a file' }),
  });
  t.equal(login.status, 200, await login.text());
  await server.stop('SIGTERM');
  rmSync(file);
  const again = await startProcess(t, env.SLIPWAY_DATA_DIR, settings);
  t.equal(await again.stop('SIGTERM'), 0);
});

t.end();
