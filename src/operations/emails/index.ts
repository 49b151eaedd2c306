/** Mail and text messages on their way out: SMTP and a webhook, or a file for development. */
import { appendFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from '../../core/config.ts';
import { exchange, operatorTargets } from '../../core/network/outbound.ts';
import type { Mail, Sms } from './mail.ts';

/** How long a server may take to accept a message, in milliseconds. */
const patience = 10_000;

/** The senders that the configuration names; without one of its own, each writes to `outbox.ndjson`. */
export async function openSenders(
  config: Pick<Config, 'dataDir' | 'smtpUrl' | 'mailFrom' | 'smsWebhookUrl'>,
): Promise<{ mail: Mail; sms: Sms }> {
  const { dataDir, smtpUrl, mailFrom, smsWebhookUrl } = config;
  const outbox = join(dataDir, 'outbox.ndjson');
  return {
    mail: smtpUrl
      ? await smtpMail(smtpUrl, mailFrom)
      : { send: (email) => keepEmail(outbox, { kind: 'mail', ...email }) },
    sms: smsWebhookUrl
      ? webhookSms(smsWebhookUrl)
      : { send: (message) => keepEmail(outbox, { kind: 'sms', ...message }) },
  };
}

async function smtpMail(url: string, from: string): Promise<Mail> {
  // Loaded only where there is a mail server: it takes megabytes.
  const { createTransport } = await import('nodemailer');
  const limits = { connectionTimeout: patience, greetingTimeout: patience, socketTimeout: patience };
  const transport = createTransport({ url, ...limits }, { from });
  return {
    send: async (email) => {
      // Nothing in an email is fetched or read from the disk, whatever is in it.
      await transport.sendMail({ ...email, disableFileAccess: true, disableUrlAccess: true });
    },
  };
}

/** Posts `{to, text}` as JSON; an answer outside 2xx is a failure. */
function webhookSms(url: string): Sms {
  return {
    send: async ({ to, text }) => {
      const body = JSON.stringify({ to, text });
      const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
      const answer = await exchange(new URL(url), { method: 'POST', headers, body }, operatorTargets);
      if (!answer.ok) throw new Error(`The SMS webhook answered ${answer.status}.`);
    },
  };
}

async function keepEmail(outbox: string, message: object): Promise<void> {
  await appendFile(outbox, `${JSON.stringify(message)}\n`, { mode: 0o600 });
}
