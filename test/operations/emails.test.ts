/** The real senders: SMTP and the webhook on loopback, and the file that stands in for both. */
import { once } from 'node:events';
import { readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createSocketServer } from 'node:net';
import { join } from 'node:path';
import { SMTPServer } from 'smtp-server';
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import { claimsOf, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

/** A mail server that keeps what it is told, and refuses one address. */
async function mailServer(t: Test) {
  const taken: Array<{ from: string; to: string[]; content: string }> = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    onRcptTo: ({ address }, _, done) =>
      done(address === 'nobody@example.com' ? new Error('no such mailbox') : undefined),
    onData: (stream, { envelope }, done) => {
      let content = '';
      stream.on('data', (chunk: Buffer) => {
        content += chunk.toString();
      });
      stream.on('end', () => {
        const from = envelope.mailFrom === false ? '' : envelope.mailFrom.address;
        taken.push({ from, to: envelope.rcptTo.map(({ address }) => address), content });
        done();
      });
    },
  });
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  t.teardown(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return { taken, url: `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}` };
}

const phoneNumber = '+41440000000';
/** Has the service text a code to the admin. */
const text = (service: Service) =>
  service.http('POST', `/api/v1/users/${claimsOf(service.admin).userId}/mfa/sms`, { body: { phoneNumber } });
const invitation = (idmUserEmail: string) => ({ createIdmUser: true, idmUserEmail });

t.test('emails go out by SMTP, and a name adds no header', async (t) => {
  const { taken, url } = await mailServer(t);
  const env = {
    SLIPWAY_SMTP_URL: url,
    SLIPWAY_MAIL_FROM: 'service@example.com',
    SLIPWAY_ACCOUNT_NAME: 'Müller\r\nBcc: all@example.com',
  };
  const service = await startService(t, { env });
  const { userId, invitationSent } = await service.create(
    '/account-users',
    'accountUser',
    invitation('new@example.com'),
  );
  t.equal(invitationSent, true);
  t.match(taken, [{ from: 'service@example.com', to: ['new@example.com'] }]);
  const [head = '', ...body] = (taken[0]?.content ?? '').split('\r\n\r\n');
  t.notMatch(head, /^Bcc/im);
  // Quoted-printable breaks long lines and writes what is not ASCII in hex.
  const text = body.join('\r\n\r\n').replace(/=\r\n/g, '');
  const [, newToken = ''] = /^token: (\S+)\r$/m.exec(text.replaceAll('=3D', '=')) ?? [];
  const change = { newPassword: 'the first secret of mine', passwordResetToken: newToken };
  const path = `/api/v1/users/${userId}/change-password-with-token`;
  t.match(await service.http('POST', path, { token: null, body: change }), { status: 200 });
});

t.test('a recipient that is refused, and a mail server that is not there, are told', async (t) => {
  const { url } = await mailServer(t);
  const service = await startService(t, { env: { SLIPWAY_SMTP_URL: url } });
  const refused = await service.create('/account-users', 'accountUser', invitation('nobody@example.com'));
  t.equal(refused.invitationSent, false);
  // A port that was free a moment ago: nobody listens there.
  const closed = createSocketServer().listen(0, '127.0.0.1');
  await once(closed, 'listening');
  const { port } = closed.address() as AddressInfo;
  closed.close();
  await once(closed, 'close');
  const alone = await startService(t, { env: { SLIPWAY_SMTP_URL: `smtp://127.0.0.1:${port}` } });
  const unsent = await alone.create('/account-users', 'accountUser', invitation('new@example.com'));
  t.equal(unsent.invitationSent, false);
});

t.test('text messages go to the webhook, and its refusal is an error', async (t) => {
  const logLines: string[] = [];
  const taken: Array<{ method: string | undefined; path: string | undefined; body: object }> = [];
  let status = 204;
  const webhook = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      taken.push({ method: request.method, path: request.url, body: JSON.parse(body) });
      response.writeHead(status).end();
    });
  });
  webhook.listen(0, '127.0.0.1');
  await once(webhook, 'listening');
  t.teardown(() => webhook.close());
  const { port } = webhook.address() as AddressInfo;
  const service = await startService(t, { env: { SLIPWAY_SMS_WEBHOOK_URL: `http://127.0.0.1:${port}/sms` }, logLines });
  t.equal((await text(service)).status, 200);
  t.match(taken, [{ method: 'POST', path: '/sms', body: { to: phoneNumber, text: /^\d{6} is your code/ } }]);
  t.strictSame(Object.keys(taken[0]?.body ?? {}), ['to', 'text']);
  status = 500;
  t.equal((await text(service)).status, 500);
  t.ok(logLines.some((line) => line.includes('The SMS webhook answered 500.')));
});

t.test('without either, emails and messages lie in the outbox, for its owner only', async (t) => {
  const service = await startService(t);
  await service.create('/account-users', 'accountUser', invitation('new@example.com'));
  t.equal((await text(service)).status, 200);
  const outbox = join(service.directory, 'outbox.ndjson');
  const lines = readFileSync(outbox, 'utf8').trimEnd().split('\n');
  t.match(
    lines.map((line) => JSON.parse(line)),
    [
      { kind: 'mail', to: 'new@example.com', subject: 'Your login at My company', text: /token: / },
      { kind: 'sms', to: phoneNumber, text: /^\d{6} is your code/ },
    ],
  );
  t.equal(statSync(outbox).mode & 0o777, 0o600);
});

t.end();
