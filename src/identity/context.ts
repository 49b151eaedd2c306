import type { Logger } from 'pino';
import type { MessageStore } from '../../db/messages/store.ts';
import type { Registry } from '../../db/registry/index.ts';
import type { Access } from '../core/access.ts';
import type { AccountGate } from '../core/account-gate.ts';
import type { Clock } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import type { Scheduler } from '../core/scheduler/scheduler.ts';
import type { Readers } from '../core/threads/readers.ts';
import type { Fields } from '../entity/fields.ts';
import type { SecretAnswers } from '../entity/kept-answers.ts';
import type { RevokedCounts } from '../http/revoked-counts.ts';
import type { Audit } from '../operations/audit/index.ts';
import type { EmailLimits } from '../operations/emails/limits.ts';
import type { Mail, Sms } from '../operations/emails/mail.ts';
import type { Downlink } from '../ports/downlink.ts';
import type { Publisher } from '../ports/publisher.ts';
import type { Revocations } from '../ports/revocations.ts';
import type { Streams } from '../ports/streams.ts';
import type { SecretOverlaps } from './grants.ts';
import type { TextedCodes } from './mfa/factors.ts';
import type { Passwords } from './secrets/passwords.ts';
import type { Sealing } from './secrets/sealing.ts';
import type { Secrets } from './secrets/secrets.ts';
import type { LoginLimits } from './sessions/login-limits.ts';
import type { Sessions } from './sessions/sessions.ts';
import type { Tokens } from './sessions/tokens.ts';

/** The services that route modules of identities get: those below them, and their own. */
export interface IdentityContext {
  config: Config;
  clock: Clock;
  log: Logger;
  /** Accounts on their way to or from another server. */
  gate: AccountGate;
  registry: Registry;
  messages: MessageStore;
  /** Pieces of long lists and exports: one is made at a time. */
  reads: Scheduler;
  readers: Readers;
  /** Long lists and exports that are being sent: each holds memory until its reader has taken it. */
  longAnswers: Scheduler;
  access: Access;
  revocations: Revocations;
  overlaps: SecretOverlaps;
  publisher: Publisher;
  streams: Streams;
  downlink: Downlink;
  fields: Fields;
  secretAnswers: SecretAnswers;
  audit: Audit;
  mail: Mail;
  emailLimits: EmailLimits;
  sms: Sms;
  /** What each request has ended. */
  revoked: RevokedCounts;
  passwords: Passwords;
  secrets: Secrets;
  tokens: Tokens;
  sessions: Sessions;
  sealing: Sealing;
  loginLimits: LoginLimits;
  textedCodes: TextedCodes;
}
