/** What stands before the services behind the broker: rights, clients, streams, what is stored of them, what is said to devices. */

import { Scheduler } from '../src/core/scheduler/scheduler.ts';
import { slices } from '../src/core/scheduler/time-slice.ts';
import type { BrokerBase, BrokerState } from '../src/ports/broker-ports.ts';
import { Authority } from './authorize.ts';
import { accountIn } from './connections/client-ids.ts';
import { type Counters, newCounters } from './connections/counters.ts';
import { Limits } from './connections/limits.ts';
import { Sessions } from './connections/live-clients.ts';
import { faultOf } from './connections/safe-error.ts';
import { DeviceDownlink } from './downlink.ts';
import { DeviceSigns } from './http/device-signs.ts';
import { StreamPositions } from './http/stream-positions.ts';
import { Streams } from './http/streams.ts';
import { MessageNumbers } from './message-numbers.ts';
import { FanOut } from './packets/fan-out.ts';
import { Routing } from './routing.ts';
import { ServiceChannels } from './service-channels.ts';
import { SessionStore } from './sessions/persistence.ts';
import type { PersistenceRules } from './sessions/persistence-rules.ts';
import type { SharedGroups } from './sessions/shared-groups.ts';

/** Levels of a topic or filter where no limit is set; `broker/routing.ts` passes no more on. */
const maxTopicLevels = 100;

/** Cost of packets that an account takes before another has its turn, while others wait. */
const costOfTurn = 512;

export interface Foundation {
  /** Where the broker listens, from `listen` on. */
  addresses: BrokerState['addresses'];
  counters: Counters;
  authority: Authority;
  sessions: Sessions;
  groups: SharedGroups;
  persistence: SessionStore;
  scheduler: Scheduler;
  fanOut: FanOut;
  messageNumbers: MessageNumbers;
  routing: Routing;
  maxTopicLevels: number;
  channels: ServiceChannels;
  downlink: DeviceDownlink;
  limits: Limits;
  marks: StreamPositions;
  signs: DeviceSigns;
  streams: Streams;
}

export function openSessions(services: BrokerBase): Foundation {
  const { config, log } = services;
  const counters = newCounters();
  const authority = new Authority(services, counters);
  const sessions = new Sessions();
  const scheduler = new Scheduler({
    quantum: costOfTurn,
    slice: slices.packets,
    failed: (error) => log.error({ fault: faultOf(error) }, 'broker: a turn failed'),
  });
  const fanOut = new FanOut({
    scheduler,
    accountOf: (topic) => authority.receivingAccountOf(topic),
    failed: (error) => log.error({ fault: faultOf(error) }, 'broker: a message was not handed on'),
  });
  const messageNumbers = new MessageNumbers();
  const persistence = openSessionStore(services, { counters, authority, fanOut, messageNumbers, scheduler });
  const { groups } = persistence;
  const routing = new Routing(persistence, fanOut, messageNumbers);
  const channels = new ServiceChannels(services, routing);
  const downlink = new DeviceDownlink({ services, authority, sessions, channels });
  const limits = new Limits(services, counters);
  const marks = new StreamPositions(services.messages);
  const streams = new Streams({ services, authority, counters, fanOut, limits, marks, scheduler });
  return {
    ...{ counters, authority, sessions, groups, persistence, scheduler, fanOut, messageNumbers, routing },
    ...{ channels, downlink, limits, marks, streams },
    signs: new DeviceSigns(sessions, authority),
    addresses: { mqtt: 0, mqtts: undefined },
    maxTopicLevels: config.mqtt.maxTopicLevels || maxTopicLevels,
  };
}

function openSessionStore(
  services: BrokerBase,
  parts: Pick<Foundation, 'counters' | 'authority' | 'fanOut' | 'messageNumbers' | 'scheduler'>,
): SessionStore {
  const { limits, mqtt } = services.config;
  return new SessionStore(
    {
      ...services,
      ...parts,
      maxQueue: mqtt.maxQueue,
      maxQueueBytes: limits.mqttQueueBytes,
      sessionExpiry: mqtt.sessionExpiry,
      maxSessions: limits.mqttStoredSessions,
      maxFilterBytes: limits.mqttFilterBytes,
      maxWillBytes: limits.mqttWillBytes,
      retainedRoom: { count: limits.mqttRetained, bytes: limits.mqttRetainedBytes },
      maxUnreleased: limits.mqttUnreleased,
    },
    sessionRules(services, parts.authority),
  );
}

function sessionRules({ gate }: BrokerBase, authority: Authority): PersistenceRules {
  return {
    deviceOf: (topic) => authority.deviceOf(topic),
    accountOf: (topic) => authority.accountOf(topic),
    receivingAccountOf: (topic) => authority.receivingAccountOf(topic),
    reachOf: (live) => authority.reachOf(live),
    mayStand: (clientId, filter) => authority.mayStand(clientId, filter),
    mayHear: ({ identity }, topic, message = {}) =>
      identity !== undefined && authority.mayHearMessage(identity.caller, identity.ownChannels, topic, message),
    mayQueue: (clientId, topic, message) => authority.mayQueue(clientId, topic, message),
    // What arrives from another server may be here before its owner.
    hasOwner: (clientId) => gate.isAway(accountIn(clientId)) || authority.hasOwner(clientId),
    mayBeRetained: (topic) => gate.isAway(authority.accountOf(topic)) || authority.namesDevice(topic),
    isAway: (accountId) => gate.isAway(accountId),
  };
}
