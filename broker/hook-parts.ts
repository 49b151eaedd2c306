import type { Scheduler } from '../src/core/scheduler/scheduler.ts';
import type { BrokerServices } from '../src/ports/broker-ports.ts';
import type { Authenticator } from './authenticate.ts';
import type { Authority } from './authorize.ts';
import type { Counters } from './connections/counters.ts';
import type { Limits } from './connections/limits.ts';
import type { Sessions } from './connections/live-clients.ts';
import type { ControlTopics } from './control.ts';
import type { DownlinkNews } from './downlink-news.ts';
import type { EnrollHooks } from './enroll.ts';
import type { Guarded } from './guarded.ts';
import type { DeviceSigns } from './http/device-signs.ts';
import type { FanOut } from './packets/fan-out.ts';
import type { Presence } from './presence.ts';
import type { Publishing } from './publish.ts';
import type { RefusalNotes } from './refusal-notes.ts';
import type { Routing } from './routing.ts';
import type { ServiceChannels } from './service-channels.ts';
import type { SessionStore } from './sessions/persistence.ts';
import type { SharedGroups } from './sessions/shared-groups.ts';

/** The services of the hooks. */
export interface HookParts {
  services: BrokerServices;
  fanOut: FanOut;
  routing: Pick<Routing, 'isClosed'>;
  counters: Counters;
  sessions: Sessions;
  groups: SharedGroups;
  authenticator: Authenticator;
  authority: Authority;
  guarded: Guarded;
  limits: Limits;
  persistence: SessionStore;
  channels: ServiceChannels;
  control: ControlTopics;
  scheduler: Scheduler;
  presence: Presence;
  publishing: Publishing;
  signs: DeviceSigns;
  notes: RefusalNotes;
  news: DownlinkNews;
  enrolls: EnrollHooks;
}
