/** The work for devices, and the broker between it and them. */
import { openBroker, openSessions, RightsRevocations } from '../../broker/index.ts';
import { ListFetcher } from '../certificates/list-fetcher.ts';
import { RevocationLists } from '../certificates/revocation-lists.ts';
import { Commands } from '../commands/commands.ts';
import type { Caller } from '../core/caller.ts';
import { timestamp } from '../core/clock.ts';
import { Merged } from '../core/limits/merged.ts';
import type { Serving } from '../enrollment/exchange/answer.ts';
import { Enrollment } from '../enrollment/exchange/exchange.ts';
import { Renewals } from '../enrollment/renewal/renewals.ts';
import { ControlMessages } from '../firmware/delivery/control-topics.ts';
import { Downloads } from '../firmware/delivery/downloads.ts';
import { DownlinkMessages } from '../firmware/delivery/json.ts';
import { Collector } from '../firmware/packages/contents.ts';
import { FirmwareEngine } from '../firmware/rollouts/engine.ts';
import { Progress } from '../firmware/rollouts/progress.ts';
import { proveAccessToken } from '../identity/access-tokens.ts';
import { lifetimeOf } from '../identity/sessions/sessions.ts';
import { readLogEntry } from '../messages/payload/log-entry.ts';
import type { BrokerBase, CredentialService, DeviceService, Downlink, ProofService } from '../ports/broker-ports.ts';
import { checkSecret, isInForce, knownGeneration } from '../registry/credentials/credentials.ts';
import { AttachedFleets } from '../registry/devices/attached-fleets.ts';
import { type FieldsWaiting, readState, setState } from '../registry/devices/state.ts';
import type { Closers } from './closers.ts';
import { OpenDeviceWork } from './open-device-work.ts';
import type { AccountServices, MessageServices } from './services.ts';
import type { Stores } from './stores.ts';

type Base = Stores & MessageServices & AccountServices;

/** What speaks to devices stands on what the broker stands on, what revokes on both; the broker opens last, for it asks them all. */
export async function openDeviceServices(base: Base, closers: Closers) {
  const ground = brokerGround(base);
  const foundation = openSessions(ground);
  closers.push(() => foundation.persistence.close());
  const { downlink } = foundation;
  const attachedFleets = new AttachedFleets(base);
  closers.push(() => attachedFleets.stop());
  const firmwareEngine = new FirmwareEngine({ ...base, downlink, attachedFleets });
  closers.push(() => firmwareEngine.stop());
  const progress = new Progress(base, (ids) => firmwareEngine.watchers.tellWatchers(ids));
  closers.push(() => progress.close());
  const downloads = new Downloads(base.firmware, base.config.limits.firmwareDownloads, (of, bytes) =>
    progress.received(of, bytes),
  );
  closers.push(() => downloads.endAll());
  const commands = new Commands(base, downlink);
  closers.push(() => commands.stop());
  const json = new DownlinkMessages({ ...base, firmwareEngine, commands }, downlink);
  const control = new ControlMessages({ ...base, firmwareEngine, downloads, progress }, downlink);
  closers.push(() => control.close());
  firmwareEngine.addListener(json);
  firmwareEngine.addListener(control);
  const deviceWork = new OpenDeviceWork({ ...base, firmwareEngine, downloads, commands });
  const revocations = new RightsRevocations({ ...foundation, services: ground, deviceWork });
  const revocationLists = new RevocationLists({ ...base, revocations });
  const listFetcher = new ListFetcher({ ...base, revocationLists });
  closers.push(() => listFetcher.close());
  const { streams } = foundation;
  const serving: Serving = { url: undefined };
  const enrollment = new Enrollment({ ...base, downlink, revocations, streams, broker: foundation, serving });
  closers.push(() => enrollment.close());
  const renewals = await Renewals.open({ ...base, revocations });
  const broker = await openBroker(foundation, {
    ...ground,
    bridges: base.bridges,
    contents: {
      readPoints: (lane, payload, now, form) => base.payloads.read(lane, payload, now, form),
      splitPoints: (accountId, retentionDays, points) => base.retention.split(accountId, retentionDays, points),
      readLogEntry,
    },
    credentials: credentialService({ ...base, enrollment, renewals }),
    devices: {
      ...ground.devices,
      setFields: fieldSetter({ ...base, downlink, firmwareEngine }),
      downlink: json,
      control,
    },
    positions: base.positions,
  });
  closers.push(() => broker.close());
  attachedFleets.listen(({ fleet, device, entered }) => {
    const time = timestamp(base.clock);
    broker.streams.tellFleet({ accountId: fleet.accountId, fleet, device, entered, time });
  });
  const collector = new Collector(base);
  return {
    ...{ attachedFleets, firmwareEngine, downloads, commands, collector, downlink, enrollment, renewals, serving },
    ...{ revocations, revocationLists, listFetcher, broker },
    ...{ publisher: broker.publisher, streams: broker.streams },
  };
}

function brokerGround(base: Base): BrokerBase {
  const { config, clock, ages, log, gate, access, registry, messages, sealing } = base;
  return {
    ...{ config, clock, ages, log, gate, access, registry, messages },
    numbers: sealing.numbers,
    proofs: proofService(base),
    devices: { state: (caller, deviceId) => readState(base, caller, deviceId) },
  };
}

function proofService(base: Base): ProofService {
  const { audit, certificates, registry, sessions } = base;
  return {
    certificates,
    secrets: {
      check: (entityId, secret, address) => checkSecret(base, entityId, secret, address),
      isProven: (entityId, secret) => knownGeneration(base, entityId, secret) !== undefined,
      isInForce: (entityId, generation) => isInForce(base, entityId, generation),
    },
    logins: {
      check: async (jwt) => {
        const authenticated = await sessions.authenticate(jwt);
        if (!authenticated) return undefined;
        const { caller, session, claims } = authenticated;
        audit.recordUse(caller, { over: 'mqtt' }, 'mqtt');
        sessions.noteUse(session.id, session.accountId);
        const expires = Date.parse(session.expires);
        return { caller, sessionId: session.id, expires, tokenLifetime: lifetimeOf(claims) };
      },
      checkAccessToken: (text, address) => {
        const proven = proveAccessToken(base, text);
        if (!proven) return undefined;
        const { caller, token } = proven;
        audit.recordUse(caller, { over: 'mqtt' }, 'mqtt');
        sessions.noteUse(token.id, token.accountId, address);
        return { caller, sessionId: token.id, expires: Date.parse(token.expires) };
      },
      tokensOf: (ownerId) => registry.accessTokensOf(ownerId),
      isOpen: (id) => sessions.isOpen(id),
      noteUse: (id, accountId) => sessions.noteUse(id, accountId),
      hasRested: (id, lifetime) => sessions.hasRested(id, lifetime),
    },
  };
}

/** A former credential ends with the first connection by the next, or with its time. */
function credentialService({
  enrollment,
  overlaps,
  renewals,
}: Pick<Base, 'overlaps'> & { enrollment: Enrollment; renewals: Renewals }): CredentialService {
  return {
    enrollment,
    renewMessage: (deviceId, present, message) => renewals.renewMessage(deviceId, present, message),
    connected: async (entityId, present) => {
      const hasEnded = await renewals.connected(entityId, present);
      if (!('generation' in present)) return hasEnded;
      return (await overlaps.connected(entityId, present.generation)) || hasEnded;
    },
    endDue: async () => [...(await overlaps.endDue()), ...(await renewals.endDue())],
  };
}

function fieldSetter(base: Base & { downlink: Downlink; firmwareEngine: FirmwareEngine }): DeviceService['setFields'] {
  const { access, firmwareEngine } = base;
  const versionSaid = (device: Caller, version: string) => firmwareEngine.versionSaid(device, version);
  const waiting: FieldsWaiting = new Merged();
  return (caller, deviceId, payload) =>
    setState({ ...base, waiting, versionSaid }, access.narrow(caller, 'update', 'device'), deviceId, payload);
}
