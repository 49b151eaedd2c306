/** The secrets of a group: what its devices prove themselves with, and what signs the questions to its hook. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { invalid } from '../../core/errors.ts';
import { checkAccountUrl } from '../../core/network/account-url.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import { makeSecret } from '../../identity/secrets/secrets.ts';
import type { MessagesContext } from '../../messages/context.ts';
import { type GroupRow, owners, type UpdateBody } from './group.ts';

/** What is stored of new secrets, and the one answer that shows them. */
export interface GroupSecrets {
  columns: Partial<GroupRow>;
  shown: { claimSecret?: string; groupKey?: string; hookSecret?: string };
}

/** A new claim secret, which is stored hashed, or a group key, which is sealed; a certificate needs neither. */
export async function makeProof(
  { secrets, sealing }: Pick<MessagesContext, 'secrets' | 'sealing'>,
  lane: Lane,
  { id, proof }: Pick<GroupRow, 'id' | 'proof'>,
): Promise<GroupSecrets> {
  if (proof === 'certificate') return { columns: {}, shown: {} };
  const secret = makeSecret();
  if (proof === 'claimSecret')
    return { columns: { claimHash: await secrets.hash(secret, lane) }, shown: { claimSecret: secret } };
  return { columns: { sealedGroupKey: sealing.seal(owners.groupKey(id), secret) }, shown: { groupKey: secret } };
}

/** The key that a device of this serial number has. Its key is the text of the group key. */
export function derivedKey(groupKey: string, serialNumber: string): string {
  return createHmac('sha256', groupKey).update(serialNumber).digest('base64url');
}

/** Whether this is the key of the serial number; it takes the same time whatever is given. */
export function isDerivedKey(sealing: Sealing, group: GroupRow, serialNumber: string, given: string): boolean {
  if (group.sealedGroupKey === null) return false;
  const key = derivedKey(sealing.open(owners.groupKey(group.id), group.sealedGroupKey), serialNumber);
  const [own, other] = [Buffer.from(key), Buffer.from(given)];
  return own.length === other.length && timingSafeEqual(own, other);
}

/** What a body says of the hook, as it is stored. @throws PlatformError 400/106 for a URL that is not one of a hook. */
export function hookColumns(
  { sealing, config }: Pick<MessagesContext, 'sealing' | 'config'>,
  id: string,
  { hookUrl, hookSecret }: Pick<UpdateBody, 'hookUrl' | 'hookSecret'>,
  before?: GroupRow,
): GroupSecrets {
  if (hookUrl === null) {
    if (hookSecret) throw invalid('hookSecret', 'needs hookUrl');
    return { columns: { sealedHookUrl: null, sealedHookSecret: null, isHookSecretMade: 0 }, shown: {} };
  }
  if (hookUrl !== undefined) checkAccountUrl('hookUrl', hookUrl, { ...config.bridges, plain: false });
  const hasUrl = hookUrl !== undefined || (before?.sealedHookUrl ?? null) !== null;
  if (hookSecret && !hasUrl) throw invalid('hookSecret', 'needs hookUrl');
  const isMade = hasUrl && !hookSecret && (hookSecret === null || (before?.sealedHookSecret ?? null) === null);
  const made = isMade ? madeHookSecret({ sealing }, id) : undefined;
  return {
    columns: {
      ...(hookUrl !== undefined && { sealedHookUrl: sealing.seal(owners.hookUrl(id), hookUrl) }),
      ...(hookSecret && { sealedHookSecret: sealing.seal(owners.hookSecret(id), hookSecret), isHookSecretMade: 0 }),
      ...made?.columns,
    },
    shown: made?.shown ?? {},
  };
}

export function madeHookSecret({ sealing }: { sealing: Sealing }, id: string): GroupSecrets {
  const hookSecret = makeSecret();
  return {
    columns: { sealedHookSecret: sealing.seal(owners.hookSecret(id), hookSecret), isHookSecretMade: 1 },
    shown: { hookSecret },
  };
}
