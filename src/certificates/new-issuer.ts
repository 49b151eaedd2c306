/** A new CA of the service itself: its key, its certificate for ten years, or a request that another CA signs. */
import { randomBytes } from 'node:crypto';
import { Type } from 'typebox';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { laneOf } from '../core/limits/lanes.ts';
import type { RegistryContext } from '../registry/context.ts';
import { keyOwner } from './issuing.ts';
import { readPem, storedAuthority } from './x509.ts';

const lifetime = 10 * 365 * 24 * 60 * 60_000;
/** Characters of a CN [RFC 5280, ub-common-name]. */
const maxCommonName = 64;
const serialBytes = 16;

/** What a body says of a CA that is to issue certificates. */
export const issuingProperties = {
  issuing: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Whether the service makes the CA, with a P-256 key that never leaves it. Send no certificate then.',
    }),
  ),
  request: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Of an issuing CA: whether another CA signs it. It is pending until its certificate is there.',
    }),
  ),
};

/** The columns of a new CA with this id. Until another CA has signed it, its certificate is its own. */
export async function newIssuer(
  { clock, pki, sealing }: RegistryContext,
  caller: Caller,
  id: string,
  { name, request = false }: { name: string; request?: boolean },
): Promise<
  Pick<
    Row<'certificateAuthorities'>,
    'state' | 'challenge' | 'issuing' | 'sealedKey' | 'certificateRequest' | 'chain'
  > &
    ReturnType<typeof storedAuthority>
> {
  const from = clock.now();
  const made = await pki.ask(laneOf(caller), 'makeNewAuthority', {
    commonName: name.slice(0, maxCommonName),
    serialNumber: randomBytes(serialBytes).toString('hex'),
    ...{ from, to: from + lifetime },
  });
  const certificate = readPem(made.certificate);
  if (typeof certificate === 'string') throw new Error(certificate);
  return {
    ...storedAuthority(certificate),
    ...{ issuing: 1, challenge: null, chain: null },
    state: request ? 'pending' : 'active',
    certificateRequest: request ? made.request : null,
    sealedKey: sealing.seal(keyOwner(id), made.key),
  };
}
