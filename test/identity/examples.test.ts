/** Runs the examples of docs/identity.md as they are there, in a shell. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { TOTP } from 'otpauth';
import t from 'tap';
import { Mailbox } from '../support/mailbox.js';
import { adminEmail, adminPassword, startService } from '../support/service.js';

const run = promisify(execFile);
const blocks = [...readFileSync('docs/identity.md', 'utf8').matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(
  ([, text]) => text,
);

t.test('every command of docs/identity.md does what the text says', async (t) => {
  const mailbox = new Mailbox();
  const service = await startService(t, { mail: mailbox });
  const env: Record<string, string> = {
    PATH: process.env.PATH ?? '',
    API: `${service.server.url}/api/v1`,
    ACCOUNT: service.accountId,
    TOKEN: service.admin,
    EMAIL: adminEmail,
    PASSWORD: adminPassword,
  };
  /** Runs the next block of the document: the last JSON that it prints. */
  const next = async () => {
    const { stdout } = await run('sh', ['-ec', blocks.shift() ?? 'exit 9'], { env });
    const answers = stdout.replace(/\}\{/g, '}\n{').split('\n');
    return JSON.parse(answers.at(-1) ?? '');
  };
  t.match(await next(), { jwt: String, csrfToken: String }, 'login');
  const { application } = await next();
  Object.assign(env, { APP: application.id, APP_TOKEN: application.appToken });
  t.match(await next(), { jwt: String }, 'login of the program');
  Object.assign(env, { TEMPLATE: (await service.template()).id, ORGANIZATION: (await service.organization()).id });
  t.match(await next(), { application: { kind: 'station', madeDevices: 0, appToken: String } }, 'a station');
  const { userId } = await next();
  const { endUserTemplates } = await service.ok(
    'GET',
    `/api/v1/end-users/templates?accountId=${service.accountId}&default=true`,
  );
  const ada = (await service.loginAs('ada@example.com', 'a password of Ada')).jwt;
  Object.assign(env, { USER: userId, ADA: ada, END_USER_TEMPLATE: endUserTemplates.results[0].id });
  const { organization } = await next();
  t.equal(organization.defaultEndUser.userId, userId, 'the first organization');
  env.ORGANIZATION = organization.id;
  t.match(await next(), { accountUser: { invitationSent: true } }, 'invitations');
  t.equal(mailbox.to('bob@example.com').length, 1);
  t.match(await next(), { success: true, userId }, 'a reset');
  env.RESET_TOKEN = mailbox.tokenTo('ada@example.com');
  t.strictSame(await next(), { success: true });
  const { jwt: token } = await service.loginAs('ada@example.com', 'another one of Ada');
  const { secret } = await service.ok('POST', `/api/v1/users/${userId}/mfa/totp`, { token });
  const totp = new TOTP({ secret });
  const code = totp.generate();
  await service.ok('POST', `/api/v1/users/${userId}/mfa/totp/confirm`, { token, body: { code } });
  env.MFA_TOKEN = (await service.loginAs('ada@example.com', 'another one of Ada')).mfaToken;
  // The service takes the next code too, for clocks that go fast.
  env.CODE = totp.generate({ timestamp: Date.now() + 30_000 });
  t.match(await next(), { jwt: String }, 'login with a second factor');
  t.strictSame(blocks, [], 'and no others are left');
});
