/** What the revocation lists of registered CAs say of a certificate. Nothing is kept in memory: a look-up reads one part of a list. */
import type { Registry } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Clock } from '../core/clock.ts';
import type { Signature } from '../ports/proofs.ts';
import { digestOf, isListed } from './pki/serial-numbers.ts';

type RevokedServices = { registry: Pick<Registry, 'revocationList' | 'revocationListPart'>; clock: Clock };

/** Why a certificate does not count any more; undefined when it does. */
export function revocationFault(
  { registry, clock }: RevokedServices,
  signatures: readonly Signature[],
): string | undefined {
  const now = clock.now();
  for (const { authorityId, serialNumber } of signatures) {
    const list = registry.revocationList(authorityId);
    if (!list) continue;
    const part = registry.revocationListPart(authorityId, digestOf(serialNumber));
    if (part && isListed(part, serialNumber)) return 'the certificate, or a CA above it, has been revoked';
    if (refusesNow(list, now)) return 'the revocation list of the CA has expired';
  }
  return undefined;
}

/** Whether a CA lets nobody in because its list has expired. */
export function refusesNow(
  { crlPolicy, crlNextUpdate }: Pick<Row<'certificateAuthorities'>, 'crlPolicy' | 'crlNextUpdate'>,
  now: number,
): boolean {
  return crlPolicy === 'refuse' && crlNextUpdate !== null && Date.parse(crlNextUpdate) <= now;
}
