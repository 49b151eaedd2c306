/** `slipway login`: the token is kept for its owner alone, renewed as it is used, and forgotten by `slipway logout`. */
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { cliFile, runToEnd } from '../support/process.ts';
import { secondFactors } from '../support/second-factors.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

let service: Service;
const { options, codeAt, enrolTotp, person } = secondFactors(() => service);
t.before(async () => {
  service = await startService(t, options);
});

/** A person at a machine of their own. */
function machine(t: Test) {
  const directory = temporaryDirectory(t);
  return {
    file: join(directory, 'slipway', 'login.json'),
    slipway: (args: string[], input = '') => runToEnd(cliFile, args, { XDG_CONFIG_HOME: directory }, input),
  };
}
const serverFlags = () => ['--server', service.server.url, '--account', service.accountId];

t.test('after login other commands need no token; after logout they do', async (t) => {
  const { file, slipway } = machine(t);
  const login = ['login', '--server', service.server.url, '--email', adminEmail, '--password-stdin'];
  const said = await slipway(login, `${adminPassword}\n`);
  t.match(said, { code: 0, stdout: /is logged in at/ }, said.stderr);
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.notOk(said.stdout.includes(JSON.parse(readFileSync(file, 'utf8')).token));
  t.match(await slipway(['device', 'list']), { code: 0 });
  const { token } = JSON.parse(readFileSync(file, 'utf8'));
  t.match(await slipway(['logout']), { code: 0 });
  t.match(await slipway(['device', 'list']), { code: 2, stderr: /slipway login/ });
  const { resultCode } = await service.ok('GET', `/api/v1/auth/validate-jwt?jwt=${token}`);
  t.not(resultCode, 0, 'the session has ended');
  t.match(await slipway(['logout']), { code: 2, stderr: /Nobody is logged in/ });
});

t.test('a wrong password is refused, and nothing is kept', async (t) => {
  const { file, slipway } = machine(t);
  const ended = await slipway(['login', ...serverFlags(), '--email', adminEmail, '--password-stdin'], 'wrong\n');
  t.match(ended, { code: 4, stderr: /email address, the password or the code is wrong/ });
  t.throws(() => statSync(file), { code: 'ENOENT' });
  t.match(await slipway(['login', ...serverFlags()]), { code: 2, stderr: /There is no terminal to ask on/ });
});

t.test('a second factor is asked for', async (t) => {
  const { slipway } = machine(t);
  const { id } = await service.organization();
  const who = await person(id);
  const { secret } = await enrolTotp(who);
  const login = ['login', ...serverFlags(), '--email', who.email, '--password-stdin'];
  t.match(await slipway(login, who.password), { code: 2, stderr: /--code/ });
  const code = codeAt(secret);
  t.match(await slipway([...login, '--code', code], who.password), { code: 0 });
});

t.test('a token is not sent to another server than the one that gave it', async (t) => {
  const { file, slipway } = machine(t);
  await slipway(['login', ...serverFlags(), '--email', adminEmail, '--password-stdin'], adminPassword);
  t.match(await slipway(['device', 'list', '--url', 'http://127.0.0.1:9']), { code: 2, stderr: /SLIPWAY_TOKEN/ });
  writeFileSync(file, 'no JSON');
  t.match(await slipway(['device', 'list']), { code: 2, stderr: /cannot be read/ });
});

t.end();
