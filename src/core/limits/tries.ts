/** What may be tried only so often, in one table. Each place that asks for a row counts by itself. */
import type { Clock } from '../clock.ts';
import type { Config } from '../config.ts';
import { Attempts } from './attempts.ts';

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

/** `most` tries in `window` milliseconds, of each key; 0 switches it off. `message` is what the 429 says. */
interface Tries {
  most: number | ((config: Config) => number);
  window: number;
  message?: string;
}

const guarded = {
  // Logins that failed

  /** By network and identity. */
  logins: { most: ({ loginFailures }) => loginFailures.perIdentity, window: 15 * minute },
  /** By network. */
  loginsOfAddress: { most: ({ loginFailures }) => loginFailures.perAddress, window: hour },
  /** By identity: beyond it strangers have one try in each `loginsOfStrangers`. */
  loginsFromAnywhere: { most: ({ loginFailures }) => loginFailures.perIdentity && 50, window: 15 * minute },
  loginsOfStrangers: { most: 1, window: 10 * second },
  /** By network: a try while one of these is left goes before those of networks that have none. It is among them itself. */
  firstLogins: { most: 2, window: hour },
  /** By identity: codes of six digits, from addresses from which it never logged in. */
  shortCodes: { most: ({ loginFailures }) => loginFailures.perIdentity && 30, window: day },
  /** By network: logins with a provider that have begun. */
  federatedLogins: { most: ({ loginFailures }) => loginFailures.perAddress, window: hour },
  /** By caller: wrong association codes. */
  associationCodes: { most: 10, window: 15 * minute },

  // Emails and texts, whose addresses anyone may choose: the mail server is ours

  /** By account and address, for whatever reason and no matter who causes them. */
  emailsToAddress: { most: 10, window: hour },
  /** By application, or by account for all its people together. */
  emailsOfRequester: { most: 300, window: hour },
  /** By person: to new addresses. */
  confirmationEmails: { most: 5, window: hour },
  /** By person. */
  resetEmails: { most: 5, window: hour },
  signInEmails: { most: 5, window: hour },
  /** By end-user. */
  invitations: { most: 100, window: hour },
  /** By identity, and by number while it is enrolled. */
  texts: { most: 10, window: hour },
  /** By account: to numbers that are being enrolled, which anybody may name, and to confirmed ones. */
  textsToEnrolling: { most: 200, window: hour },
  textsToConfirmed: { most: 1000, window: hour },

  // Credentials of devices

  /** By device: each leaves a certificate on a revocation list, or a hash. */
  renewals: { most: 20, window: hour, message: 'The device has renewed its credential too often in the last hour.' },

  // Requests

  /** By caller. */
  requests: {
    most: ({ httpRatePerCaller }) => httpRatePerCaller,
    window: second,
    message: 'SLIPWAY_HTTP_RATE_PER_CALLER: too many requests of one caller.',
  },
  /** By network. */
  signInRequests: { most: 20, window: hour },
  /** By application: all phones that run it share its token. */
  passwordResets: { most: 600, window: minute },
  /** By application; each costs the hash of a password. */
  registrations: { most: 300, window: minute },

  // Devices

  /** By network. */
  failedConnects: { most: ({ mqtt }) => mqtt.failedConnectsPerAddress, window: minute },
  /** By network and principal. */
  guessedSecrets: { most: ({ mqtt }) => mqtt.failedConnectsPerPrincipal, window: minute },
  /** By network and group: wrong proofs of enrollments; and by network alone. */
  enrollments: { most: ({ mqtt }) => mqtt.failedConnectsPerPrincipal, window: minute },
  enrollmentsOfAddress: { most: ({ mqtt }) => mqtt.failedConnectsPerAddress, window: minute },
  /** By network: protocol levels that were refused, in the log. */
  loggedLevels: { most: 1, window: minute },
  /** By client, over HTTP: messages, their bytes and their points. */
  messages: {
    most: ({ mqtt }) => mqtt.publishRatePerClient,
    window: second,
    message: 'SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: too many messages of one client.',
  },
  messageBytes: {
    most: ({ mqtt }) => mqtt.byteRatePerClient,
    window: second,
    message: 'SLIPWAY_MQTT_BYTE_RATE_PER_CLIENT: too many bytes of one client.',
  },
  messagePoints: {
    most: ({ mqtt }) => mqtt.pointRatePerClient,
    window: second,
    message: 'SLIPWAY_MQTT_POINT_RATE_PER_CLIENT: too many points of one client.',
  },
  refusedMessages: {
    most: ({ mqtt }) => mqtt.refusalsPerMinute,
    window: minute,
    message: 'SLIPWAY_MQTT_REFUSALS_PER_MINUTE: refused too often.',
  },
} satisfies Record<string, Tries>;

/** Counts the tries of a row, on the injected clock. */
export function limitTries(row: keyof typeof guarded, { clock, config }: { clock: Clock; config: Config }): Attempts {
  const { most, window, message }: Tries = guarded[row];
  return new Attempts(clock, typeof most === 'number' ? most : most(config), window, message);
}
