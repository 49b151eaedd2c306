/** `slipway login` and `slipway logout`: a person's session for the other commands. */
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { readServerUrl } from '../src/core/config.ts';
import { Client, reasonOf } from './line/client.ts';
import { readCaFile } from './line/line.ts';
import { printError } from './line/options.ts';
import { forgetLogin, readLogin, saveLogin } from './saved-login.ts';
import { refused, UsageError } from './usage.ts';

interface LoginFlags {
  server: string | undefined;
  account: string | undefined;
  email: string | undefined;
  passwordStdin: boolean;
  /** Of the second factor. */
  code: string | undefined;
  /** A PEM file. */
  ca: string | undefined;
  json: boolean;
}

/** What logging in answers: a session, or that a second factor is needed. */
interface Login {
  jwt?: string;
  mfaToken?: string;
  mfaMethods?: Array<'totp' | 'sms'>;
  /** Of the headers of this server. */
  prefix: string;
}

export async function login(flags: LoginFlags): Promise<void> {
  const url = readServerUrl(flags.server ?? readLogin()?.url ?? 'http://127.0.0.1:3000');
  const client = await anonymous(url, flags.ca);
  try {
    const accountId = flags.account ?? (await onlyAccount(client));
    const emailAddress = flags.email ?? (await ask('Email address: '));
    const password = flags.passwordStdin ? await readPassword() : await ask('Password: ', { isHidden: true });
    const body = { accountId, emailAddress, password };
    const begun = await post(client, '/auth/login-user', { body });
    const { jwt } = begun.mfaToken === undefined ? begun : await secondFactor(client, begun, flags.code);
    if (jwt === undefined) throw refused('The server has answered without a token.');
    const file = saveLogin({ url, token: jwt });
    const shown = { url, accountId, emailAddress, file };
    if (flags.json) process.stdout.write(`${JSON.stringify(shown)}\n`);
    else process.stdout.write(`${emailAddress} is logged in at ${url}. The token is in ${file}.\n`);
  } finally {
    client.close();
  }
}

/** Ends the session, too; one that has ended already is only forgotten. */
export async function logout(flags: { ca: string | undefined }): Promise<void> {
  const saved = readLogin();
  if (!saved) throw new UsageError('Nobody is logged in.');
  forgetLogin();
  const client = await anonymous(saved.url, flags.ca);
  try {
    const headers = { authorization: `Bearer ${saved.token}` };
    const answer = await client.call('POST', '/sessions/logout', { headers });
    if (answer.status >= 300 && answer.status !== 401) throw refused(`The session has not ended: ${reasonOf(answer)}`);
  } finally {
    client.close();
  }
  process.stdout.write(`Logged out of ${saved.url}.\n`);
}

function anonymous(url: string, ca: string | undefined): Promise<Client> {
  const pem = url.startsWith('https:') ? readCaFile(ca) : undefined;
  return Client.openAnonymous({ url, ca: pem, retryFor: 0, signal: undefined, printLine: printError });
}

async function onlyAccount(client: Client): Promise<string> {
  const answer = await client.call('GET', '/auth/default-account');
  if (answer.status === 200) return (JSON.parse(answer.text) as { accountId: string }).accountId;
  if (answer.status === 404) return ask('Account id: ');
  throw new UsageError(reasonOf(answer));
}

async function secondFactor(
  client: Client,
  { mfaToken = '', mfaMethods = [], prefix }: Login,
  code: string | undefined,
) {
  const mfaMethod = mfaMethods.includes('totp') ? 'totp' : 'sms';
  const headers = { [`${prefix}-mfa-token`]: mfaToken };
  // With a code, the text message has been sent already.
  if (mfaMethod === 'sms' && code === undefined)
    await post(client, '/auth/mfa-trigger-auth', { headers, body: { mfaMethod } });
  const asked = mfaMethod === 'totp' ? 'Code of your authenticator app: ' : 'Code of the text message: ';
  return post(client, '/auth/mfa-login-user', { headers, body: { mfaMethod, code: code ?? (await ask(asked)) } });
}

async function post(
  client: Client,
  path: string,
  { headers, body }: { headers?: Record<string, string>; body: object },
): Promise<Login> {
  // The prefix of headers is a setting of the server, which names them to pages of other origins.
  const answer = await client.call('POST', path, { body, headers: { ...headers, origin: client.options.url } });
  if (answer.status === 401) throw refused('The email address, the password or the code is wrong.');
  if (answer.status >= 300) throw new UsageError(reasonOf(answer));
  const [, prefix = 'platform'] =
    /([\w-]+)-access-token/.exec(`${answer.headers['access-control-expose-headers']}`) ?? [];
  return { ...(JSON.parse(answer.text) as Omit<Login, 'prefix'>), prefix };
}

/** Standard input without the end of its line. */
async function readPassword(): Promise<string> {
  const password = (await text(process.stdin)).replace(/\r?\n$/, '');
  if (password === '') throw new UsageError('--password-stdin: there is no password on standard input.');
  return password;
}

/** @throws UsageError where there is no terminal to ask on. */
async function ask(question: string, { isHidden = false } = {}): Promise<string> {
  if (!process.stdin.isTTY)
    throw new UsageError(`There is no terminal to ask on: give --email, --account, --code and --password-stdin.`);
  process.stderr.write(question);
  const hidden = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({
    input: process.stdin,
    output: isHidden ? hidden : process.stderr,
    terminal: true,
  });
  try {
    return (await terminal.question('')).trim();
  } finally {
    terminal.close();
    if (isHidden) process.stderr.write('\n');
  }
}
