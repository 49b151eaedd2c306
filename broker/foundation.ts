/** What can stand before the services behind the broker do: rights, clients, what is stored of them, and what is said to devices. */

import { Aedes } from 'aedes';
import mqttPacket from 'mqtt-packet';
import type { BrokerGround } from '../src/broker-ports.ts';
import { Scheduler } from '../src/scheduler/scheduler.ts';
import { slices } from '../src/scheduler/time-slice.ts';
import type { BrokerCore } from './aedes-types.ts';
import { Authority } from './authorize.ts';
import { accountIn } from './connections/client-ids.ts';
import { type Counters, newCounters } from './connections/counters.ts';
import { Sessions } from './connections/live-clients.ts';
import { faultOf } from './connections/safe-error.ts';
import { DeviceDownlink } from './downlink.ts';
import { FanOut } from './packets/fan-out.ts';
import { ServiceChannels } from './service-channels.ts';
import { SessionStore } from './sessions/persistence.ts';
import type { PersistenceRules } from './sessions/persistence-rules.ts';

/** Milliseconds that a subscriber may take to read a QoS 1 or 2 message before it is disconnected. */
const drainTimeout = 5000;
/** Aedes' own limit, above any private id that we make. */
const maxPrivateClientIdLength = 1024;
/** For Aedes' own connect timer, which ends when CONNECT arrives; the listeners' deadline lasts until CONNACK. */
const never = 2 ** 31 - 1;
/** Levels that the matcher of Aedes can take. */
const maxTopicLevels = 100;

// Before it first writes a packet it would make a buffer for each number of two bytes: 8 MB, and a pause.
Object.assign(mqttPacket.writeToStream, { cacheNumbers: false });

/** Cost of packets that an account takes before another has its turn, while others wait. */
const costOfTurn = 512;

export interface Foundation {
  counters: Counters;
  authority: Authority;
  sessions: Sessions;
  persistence: SessionStore;
  scheduler: Scheduler;
  fanOut: FanOut;
  /** Without hooks: `attachHooks` sets them before it listens. */
  aedes: BrokerCore;
  maxTopicLevels: number;
  channels: ServiceChannels;
  downlink: DeviceDownlink;
}

export function layFoundation(services: BrokerGround): Foundation {
  const { config, log } = services;
  const counters = newCounters();
  const authority = new Authority(services, counters);
  const sessions = new Sessions();
  const persistence = openSessionStore(services, counters, authority);
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
  const levels = config.mqtt.maxTopicLevels || maxTopicLevels;
  const aedes = new Aedes({
    persistence,
    mq: fanOut,
    // With a limit, one subscriber that does not read stalls everyone.
    concurrency: 0,
    drainTimeout,
    connectTimeout: never,
    maxClientsIdLength: maxPrivateClientIdLength,
    maxTopicLevels: levels,
  }) as BrokerCore;
  const channels = new ServiceChannels(services, aedes);
  const downlink = new DeviceDownlink({ services, authority, sessions, channels });
  return {
    ...{ counters, authority, sessions, persistence, scheduler, fanOut, aedes, channels, downlink },
    maxTopicLevels: levels,
  };
}

function openSessionStore(services: BrokerGround, counters: Counters, authority: Authority): SessionStore {
  const { limits, mqtt } = services.config;
  return new SessionStore(
    {
      ...services,
      counters,
      maxQueue: mqtt.maxQueue,
      maxQueueBytes: limits.mqttQueueBytes,
      sessionExpiry: mqtt.sessionExpiry,
      maxSessions: limits.mqttStoredSessions,
      retainedRoom: { count: limits.mqttRetained, bytes: limits.mqttRetainedBytes },
      maxUnreleased: limits.mqttUnreleased,
    },
    sessionRules(services, authority),
  );
}

function sessionRules({ gate }: BrokerGround, authority: Authority): PersistenceRules {
  return {
    deviceOf: (topic) => authority.deviceOf(topic),
    accountOf: (topic) => authority.accountOf(topic),
    reachOf: (live) => authority.reachOf(live),
    mayStand: (clientId, filter) => authority.mayStand(clientId, filter),
    isGranted: ({ live }, filter) => live?.filters.has(filter) ?? false,
    mayQueue: (clientId, topic) => authority.mayQueue(clientId, topic),
    // What arrives from another server may be here before its owner.
    hasOwner: (clientId) => gate.isAway(accountIn(clientId)) || authority.hasOwner(clientId),
    mayBeRetained: (topic) => gate.isAway(authority.accountOf(topic)) || authority.namesDevice(topic),
    isAway: (accountId) => gate.isAway(accountId),
    sendsRetained: true,
  };
}
