/** People with second factors: a clock and text messages in the hands of the test, and the steps of a login. */
import { Secret, TOTP } from 'otpauth';
import type { Service } from './service.ts';
import { countStored, storedRows } from './stored.ts';

const minute = 60_000;
/** How long a code of an authenticator app is shown, in milliseconds. */
const step = 30_000;

/** A person who can log in, and the service that knows them. */
export interface Person {
  userId: string;
  email: string;
  password: string;
  token: string;
  at: Service;
}

/** A code of a text message that is not this one. */
export const otherCode = (right: string) => String((Number(right) + 1) % 1_000_000).padStart(6, '0');

/** Runs a request many times at once. */
export const atOnce = <A>(times: number, ask: (n: number) => Promise<A>) =>
  Promise.all(Array.from({ length: times }, (_, n) => ask(n)));

/** How many answers there are of each status. */
export function statuses(answers: Array<{ status: number }>): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** What a test of second factors starts its service with, and what it does there. `current` is that service. */
export function secondFactors(current: () => Service) {
  const time = { now: Date.parse('2026-03-01T00:00:00Z') };
  const texts: Array<{ to: string; text: string }> = [];
  const options = {
    clock: { now: () => time.now },
    sms: { send: async (message: { to: string; text: string }) => void texts.push(message) },
    // Without the limits on guessing, so that what is refused is refused by the codes themselves.
    env: { SLIPWAY_LOGIN_FAILURES_PER_IDENTITY: '0', SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '0' },
  };
  /** So much later that no code of before is in its window. */
  const muchLater = () => {
    time.now += 60 * minute;
  };

  async function person(organizationId: string, at = current()): Promise<Person> {
    const { endUser, email, password, token } = await at.endUser(organizationId);
    return { userId: endUser.userId, email, password, token, at };
  }

  const codeAt = (secret: string, now = time.now) =>
    new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: now });
  /** A code that is wrong now and two steps before and after: codes of the steps beside are taken, too. */
  const wrongCode = (secret: string) => {
    const near = [-2, -1, 0, 1, 2].map((away) => codeAt(secret, time.now + away * step));
    return ['000000', '111111', '222222', '333333', '444444', '555555'].find((code) => !near.includes(code)) ?? '';
  };
  const textedCode = () => /^\d{6}/.exec(texts.at(-1)?.text ?? '')?.[0] ?? 'no text';

  /** A request about the second factors of a person, by themselves. */
  const mfa = (who: Person, method: string, path: string, body?: object, headers = {}) =>
    who.at.http(method, `/api/v1/users/${who.userId}/mfa/${path}`, {
      token: who.token,
      headers,
      ...(body !== undefined && { body }),
    });

  /** Gives a person an authenticator app; its next code is a new one. */
  async function enrolTotp(who: Person): Promise<{ secret: string; recoveryCodes: string[] }> {
    const { secret } = (await mfa(who, 'POST', 'totp')).body;
    const { status, body } = await mfa(who, 'POST', 'totp/confirm', { code: codeAt(secret) });
    if (status !== 200) throw new Error(`confirm answered ${status}`);
    time.now += step;
    return { secret, recoveryCodes: body.recoveryCodes };
  }

  /** Gives a person codes by text message; the recovery codes. */
  async function enrolSms(who: Person, phoneNumber = '+1 555 0100'): Promise<string[]> {
    await mfa(who, 'POST', 'sms', { phoneNumber });
    return (await mfa(who, 'POST', 'sms/confirm', { code: textedCode() })).body.recoveryCodes;
  }

  /** The first step of a login. */
  const passwordStep = ({ at, email, password }: Person, body: object = {}, headers = {}) =>
    at.http('POST', '/api/v1/auth/login-user', {
      token: null,
      headers,
      body: { emailAddress: email, password, accountId: at.accountId, ...body },
    });
  const mfaToken = async (who: Person, body: object = {}) => (await passwordStep(who, body)).body.mfaToken;
  /** Asks for a code by text message. */
  const trigger = (token: string, at = current()) =>
    at.http('POST', '/api/v1/auth/mfa-trigger-auth', {
      token: null,
      headers: { 'platform-mfa-token': token },
      body: { mfaMethod: 'sms' },
    });
  /** The second step of a login. */
  const codeStep = (token: string, mfaMethod: string, code: string, headers = {}, at = current()) =>
    at.http('POST', '/api/v1/auth/mfa-login-user', {
      token: null,
      headers: { 'platform-mfa-token': token, ...headers },
      body: { mfaMethod, code },
    });

  const rows = (table: 'mfaMethods' | 'recoveryCodes' | 'mfaLogins', userId: string) =>
    storedRows(current(), `SELECT * FROM "${table}" WHERE "userId" = ?`, [userId]);
  const sessionsOf = ({ userId }: Person) => countStored(current(), 'sessions', '"userId" = ?', [userId]);

  return {
    ...{ time, texts, options, muchLater, person, codeAt, wrongCode, textedCode, mfa, enrolTotp, enrolSms },
    ...{ passwordStep, mfaToken, trigger, codeStep, rows, sessionsOf },
  };
}
