import type { BrokerServices } from '../../src/broker-ports.js';
import type { BrokerCore } from '../aedes-types.js';
import type { Authenticator } from '../authenticate.js';
import type { Authority } from '../authorize.js';
import type { Counters } from '../connections/counters.js';
import type { Limits } from '../connections/limits.js';
import type { Listeners } from '../connections/listeners.js';
import type { Sessions } from '../connections/live-clients.js';
import type { ControlTopics } from '../control.js';
import type { DeviceSigns } from '../http/device-signs.js';
import type { Ingest } from '../ingest/ingest.js';
import type { Pace } from '../packets/pace.js';
import type { Presence } from '../presence.js';
import type { Publications } from '../publications.js';
import type { ServiceChannels } from '../service-channels.js';
import type { SessionStore } from '../sessions/persistence.js';
import type { DownlinkNews } from './downlink-news.js';
import type { RefusalNotes } from './refusal-notes.js';

/** The services of the hooks. */
export interface HookParts {
  services: BrokerServices;
  aedes: BrokerCore;
  counters: Counters;
  sessions: Sessions;
  authenticator: Authenticator;
  authority: Authority;
  limits: Limits;
  persistence: SessionStore;
  channels: ServiceChannels;
  control: ControlTopics;
  ingest: Ingest;
  pace: Pace;
  presence: Presence;
  publications: Publications;
  signs: DeviceSigns;
  notes: RefusalNotes;
  downlink: DownlinkNews;
  listeners: Listeners;
}
