/** The parts of the broker, each made of those above it. */
import type { BrokerServices } from '../src/ports/broker-ports.ts';
import { Activity } from './activity.ts';
import { Authenticator } from './authenticate.ts';
import { ConnectHooks } from './connect.ts';
import { Listeners } from './connections/listeners.ts';
import { PeerCertificates } from './connections/peer-certificates.ts';
import { ControlTopics } from './control.ts';
import { CredentialChannel } from './credentials.ts';
import { DownlinkNews } from './downlink-news.ts';
import { EnrollHooks } from './enroll.ts';
import { FirstMessages } from './first-messages.ts';
import type { Foundation } from './foundation.ts';
import { guardedBy } from './guarded.ts';
import { AccountHandover } from './handover.ts';
import { DirectPublisher } from './http/direct.ts';
import { Ingest } from './ingest/ingest.ts';
import { Rejections } from './ingest/rejections.ts';
import { Reports } from './ingest/reports.ts';
import { MessageChecks } from './message-checks.ts';
import { Deliveries } from './packets/deliveries.ts';
import { PacketReceiver } from './packets/receiver.ts';
import { Presence } from './presence.ts';
import { Publications } from './publications.ts';
import { Publishing } from './publish.ts';
import { RefusalNotes } from './refusal-notes.ts';
import { Refusals } from './refusals.ts';
import { ReverseDns } from './reverse-dns.ts';
import { SubscribeHooks } from './subscribe.ts';
import { PublishHooks } from './wills.ts';

export type BrokerParts = ReturnType<typeof brokerParts>;

export function brokerParts(foundation: Foundation, services: BrokerServices) {
  const own = ownParts(foundation, services);
  const publishes = new PublishHooks(own);
  const deliveries = new Deliveries({
    ...own,
    ages: services.ages,
    maxQueue: services.config.mqtt.maxQueue,
    forward: (client, packet) => own.guarded('forward', () => publishes.forward(client, packet)),
  });
  const firstMessages = new FirstMessages({ ...own, deliveries });
  const hooks = {
    publishes,
    connects: new ConnectHooks({ ...own, deliveries, firstMessages, publishes }),
    subscribes: new SubscribeHooks({ ...own, firstMessages }),
  };
  const listeners = newListeners({ ...own, ...hooks, deliveries });
  const parts = { ...own, ...hooks, listeners };
  return {
    ...parts,
    publisher: new DirectPublisher(own),
    handover: new AccountHandover(parts),
  };
}

/** What a CONNECT and a message pass, and what is noted of them. */
function ownParts(foundation: Foundation, services: BrokerServices) {
  const { authority, channels, counters, limits, marks, persistence, sessions, signs } = foundation;
  const { config, clock, devices, log } = services;
  const guarded = guardedBy(log);
  const peers = new PeerCertificates();
  const checks = new MessageChecks({ ...foundation, config });
  const authenticator = new Authenticator({ services, sessions, authority, checks, limits, peers, room: persistence });
  const reports = new Reports();
  const control = new ControlTopics({ control: devices.control, log }, reports);
  const credentials = new CredentialChannel(services, reports);
  const activity = new Activity(services);
  const refusals = new Refusals(services, activity);
  const rejections = new Rejections(services, channels, refusals);
  const ingest = new Ingest({ services, rejections, persistence, marks, counters, reports });
  const names = new ReverseDns(config.dnsServers, clock);
  const presence = new Presence(services, channels, names);
  const publications = new Publications(services, signs);
  const publishing = new Publishing({
    ...foundation,
    ...{ services, activity, checks, control, credentials, ingest, presence, publications, rejections },
  });
  const notes = new RefusalNotes(services, refusals);
  const news = new DownlinkNews({ downlink: devices.downlink, log }, sessions);
  const enrolls = new EnrollHooks({
    config,
    enrollment: services.credentials.enrollment,
    authenticator,
    limits,
    peers,
  });
  return {
    ...{ ...foundation, services, guarded, peers, authenticator, reports, control, refusals, ingest },
    ...{ activity, names, presence, publications, publishing, notes, news, enrolls },
  };
}

type Networked = ReturnType<typeof ownParts> & {
  connects: ConnectHooks;
  deliveries: Deliveries;
  subscribes: SubscribeHooks;
};

/** What takes packets from sockets. */
function newListeners({ connects, guarded, services, ...parts }: Networked): Listeners {
  const { addresses, limits, peers, scheduler } = parts;
  const receiver = new PacketReceiver({
    ...parts,
    log: services.log,
    isAway: (accountId) => services.gate.isAway(accountId),
    sessionUsed: services.proofs.logins.noteUse,
  });
  return new Listeners({
    ...{ services, addresses, limits, peers, receiver, scheduler },
    levelRefused: (conn, connect) => guarded('levelRefused', () => connects.levelRefused(conn, connect)),
    connected: (connecting) => connects.connected(connecting),
    failed: (conn, error) => guarded('failed', () => connects.failed(conn, error)),
  });
}
