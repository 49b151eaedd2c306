/** What follows when somebody loses a right. */
import type { Placement } from '../../db/registry/index.ts';

/** A channel of the device template `entityId`. */
export interface ChannelAddress {
  accountId: string;
  entityId: string;
  name: string;
}

/** Counts of what a change of rights ended over MQTT; a filter counts once for its session, live or stored. */
export interface Revoked {
  connections: number;
  subscriptions: number;
}

/**
 * What follows when somebody loses a right: call it after the commit, and when `access` has been told. All effects have taken
 * place when a method returns or resolves.
 */
export interface Revocations {
  /** The secret of a device or entity is another one: connections end, without their wills. */
  secretReplaced(entityId: string): Revoked;
  /** Another secret is in force besides the former one: connections made with an older one end, without their wills. */
  secretOverlaps(entityId: string): Revoked;
  /** A certificate, or a CA, is registered no more: the connections that it let in end, without their wills. */
  certificateEnded(id: string): Revoked;
  /** A CA has revoked certificates: connections whose certificate, or a CA above it, is one of them end, without their wills. */
  certificatesRevoked(authorityId: string, isRevoked: (serialNumber: string) => boolean): Promise<Revoked>;
  /** A login session is over: its connections end, without their wills. */
  loginEnded(sessionId: string): Revoked;
  /** As loginEnded, for every session that another process has ended. */
  loginsEnded(): void;
  /** An identity or an application is gone, with its connections and stored sessions. */
  principalDeleted(accountId: string, id: string): Promise<Revoked>;
  /** The rights of an identity may have shrunk; an identity without any reach counts as deleted. */
  identityChanged(accountId: string, userId: string): Promise<Revoked>;
  /** As identityChanged, for an end-user or account user that has a secret of its own. */
  entityChanged(accountId: string, entityId: string): Promise<Revoked>;
  /** As identityChanged, for a back-end. */
  applicationChanged(accountId: string, applicationId: string): Promise<Revoked>;
  /** A role of the account gives other rights to all who have it. */
  roleChanged(accountId: string): Promise<Revoked>;
  /** A device is in another organization than `before`. */
  deviceMoved(device: Placement, before: Placement): Promise<Revoked>;
  /** A device is in the trash. */
  deviceDeleted(device: Placement): Promise<Revoked>;
  /** An organization stood below `before`, and stands elsewhere in the tree. */
  organizationMoved(organization: { id: string; accountId: string }, before: string | null): Promise<Revoked>;
  /** A channel of a device template is in the trash. */
  channelDeleted(channel: ChannelAddress): Promise<Revoked>;
}
