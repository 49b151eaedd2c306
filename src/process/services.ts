/** The services of the resources, each group made of the groups above it. */
import { join } from 'node:path';
import { Bridges } from '../bridges/index.ts';
import { ClientCertificates } from '../certificates/client-certificates.ts';
import { IssuedLists } from '../certificates/issued-lists.ts';
import { Issuing } from '../certificates/issuing.ts';
import { PkiThreads } from '../certificates/pki/threads.ts';
import { Scheduler } from '../core/scheduler/scheduler.ts';
import { TimerWheel } from '../core/timer-wheel.ts';
import { Fields } from '../entity/fields.ts';
import { SecretAnswers } from '../entity/kept-answers.ts';
import { Schemas } from '../entity/schemas/schemas.ts';
import { LabelDrawer } from '../factory/results/label-drawer.ts';
import { RevokedCounts } from '../http/revoked-counts.ts';
import { TextedCodes } from '../identity/mfa/factors.ts';
import { Passwords } from '../identity/secrets/passwords.ts';
import { Sealing } from '../identity/secrets/sealing.ts';
import { Secrets } from '../identity/secrets/secrets.ts';
import { LoginLimits } from '../identity/sessions/login-limits.ts';
import { Sessions } from '../identity/sessions/sessions.ts';
import { Tokens } from '../identity/sessions/tokens.ts';
import { SessionUses } from '../identity/sessions/uses.ts';
import { Keeping } from '../messages/keeping.ts';
import { PayloadReader } from '../messages/payload/reader.ts';
import { Retention } from '../messages/retention.ts';
import { Audit } from '../operations/audit/index.ts';
import { openSenders } from '../operations/emails/index.ts';
import { EmailLimits } from '../operations/emails/limits.ts';
import { Overlaps } from '../registry/credentials/overlaps.ts';
import type { Closers } from './closers.ts';
import type { Overrides, Stores } from './stores.ts';

/** Rows of an ordinary piece of a list, and pieces that may wait. */
const ordinaryRead = 50;
const maxReads = { ofCaller: 1000, ofAccount: 4000 };

export type MessageServices = Awaited<ReturnType<typeof openMessageServices>>;
export type AccountServices = Awaited<ReturnType<typeof openAccountServices>>;

/** What is stored of messages, and for how long; what draws labels. */
export async function openMessageServices(stores: Stores, { freeOnDisk }: Overrides, closers: Closers) {
  const { config } = stores;
  const keeping = await Keeping.start({ ...stores, freeOnDisk });
  closers.push(() => keeping.stop());
  const retention = await Retention.open(stores);
  const payloads = new PayloadReader({
    points: config.mqtt.maxPoints || Number.POSITIVE_INFINITY,
    depth: config.mqtt.maxDepth || Number.POSITIVE_INFINITY,
  });
  closers.push(() => payloads.close());
  const labels = new LabelDrawer();
  closers.push(() => labels.close());
  return { keeping, retention, payloads, labels };
}

/** Who may come in, what is noted of them, and what accounts keep. */
export async function openAccountServices(
  stores: Stores & Pick<MessageServices, 'keeping'>,
  overrides: Overrides,
  closers: Closers,
) {
  const { config, clock, registry } = stores;
  const wheel = new TimerWheel({ clock });
  closers.push(() => wheel.stop());
  const keys = join(config.dataDir, 'keys');
  const tokens = await Tokens.open(keys, clock);
  const fields = new Fields(registry, config.limits);
  const secretAnswers = await SecretAnswers.open(registry);
  const overlaps = await Overlaps.open(stores);
  const uses = new SessionUses(stores);
  closers.push(() => uses.close());
  const sessions = new Sessions({ ...stores, tokens, uses });
  const audit = new Audit(stores);
  closers.push(() => audit.close());
  const sealing = Sealing.open(keys);
  const pki = new PkiThreads();
  closers.push(() => pki.close());
  const schemas = new Schemas();
  closers.push(() => schemas.close());
  const issuing = new Issuing({ ...stores, pki, sealing });
  const bridges = await Bridges.open({ ...stores, sealing });
  closers.push(() => bridges.close());
  const senders = await openSenders(config);
  const sms = overrides.sms ?? senders.sms;
  return {
    ...{ wheel, tokens, fields, secretAnswers, overlaps, sessions, audit, sealing, bridges, sms, schemas },
    mail: overrides.mail ?? senders.mail,
    emailLimits: new EmailLimits(stores),
    passwords: overrides.passwords ?? new Passwords(),
    secrets: new Secrets(),
    loginLimits: new LoginLimits(stores),
    textedCodes: new TextedCodes({ clock, config, sealing, sms }),
    certificates: new ClientCertificates({ ...stores, audit, fields }),
    issuing,
    issuedLists: new IssuedLists({ ...stores, pki, issuing }),
    pki,
    revoked: new RevokedCounts(),
    reads: new Scheduler({ atOnce: 1, quantum: ordinaryRead, maxWaiting: maxReads, isLong: true }),
    longAnswers: new Scheduler({ perAccount: config.limits.longAnswers }),
  };
}
