/** Our rules in the places that Aedes has for them: its hooks, and what it tells of its clients. */
import type { Logger } from 'pino';
import type { BrokerClient, BrokerCore, Outgoing, Will } from '../aedes-types.ts';
import type { Limits } from '../connections/limits.ts';
import { faultOf } from '../connections/safe-error.ts';
import type { ConnectHooks } from './connect.ts';
import type { Guarded } from './guarded.ts';
import type { PublishHooks } from './publish.ts';
import type { SubscribeHooks } from './subscribe.ts';

export interface AttachedParts {
  aedes: BrokerCore;
  log: Logger;
  guarded: Guarded;
  limits: Limits;
  connects: ConnectHooks;
  publishes: PublishHooks;
  subscribes: SubscribeHooks;
}

/** Call it before Aedes listens. */
export function attachHooks(parts: AttachedParts): void {
  const { aedes, guarded, connects, publishes, subscribes } = parts;
  aedes.preConnect = (client, packet, done) =>
    guarded(
      'preConnect',
      () => connects.preConnect(client as BrokerClient, packet, done),
      (error) => done(error, false),
    );
  aedes.authenticate = (client, username, password, done) =>
    void connects.authenticate(client as BrokerClient, username, password, done);
  // Aedes asks for wills alone: packets go past it.
  aedes.authorizePublish = (client, will, done) =>
    guarded('authorizePublish', () => publishes.publishWill(client as BrokerClient, will as Will, done), done);
  aedes.authorizeSubscribe = (client, subscription, done) =>
    guarded('authorizeSubscribe', () => subscribes.subscribe(client as BrokerClient, subscription, done), done);
  aedes.authorizeForward = (client, packet) =>
    guarded('authorizeForward', () => publishes.forward(client as BrokerClient, packet as Outgoing));
  hearClients(parts);
}

function hearClients({ aedes, log, guarded, limits, connects, subscribes }: AttachedParts): void {
  aedes.on('client', (client) => guarded('client', () => connects.registered(client as BrokerClient)));
  aedes.on('connackSent', ({ returnCode }, client) => {
    if (returnCode === 0) guarded('connackSent', () => connects.connackSent(client as BrokerClient));
  });
  aedes.on('clientReady', (client) => guarded('clientReady', () => connects.ready(client as BrokerClient)));
  aedes.on('subscribe', (subscriptions, client) =>
    guarded('subscribe', () => subscribes.subscribed(client as BrokerClient, subscriptions)),
  );
  aedes.on('unsubscribe', (filters, client) =>
    guarded('unsubscribe', () => subscribes.unsubscribed(client as BrokerClient, filters)),
  );
  aedes.on('clientError', (client, error) => {
    limits.ended(error, client.conn);
    guarded('clientError', () => connects.failed(client as BrokerClient, error));
    log.debug({ fault: faultOf(error), clientId: client.id, ...limits.about(client.conn) }, 'connection failed');
  });
  aedes.on('connectionError', ({ conn }, error) => {
    limits.ended(error, conn);
    log.debug({ fault: faultOf(error), ...limits.about(conn) }, 'connection failed before it was proven');
  });
  // Without a listener, an error in the publish path would end the process.
  (aedes as NodeJS.EventEmitter).on('error', (error) => log.error({ fault: faultOf(error) }, 'broker error'));
}
