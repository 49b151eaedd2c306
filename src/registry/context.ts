import type { ClientCertificates } from '../certificates/client-certificates.ts';
import type { IssuedLists } from '../certificates/issued-lists.ts';
import type { Issuing } from '../certificates/issuing.ts';
import type { ListFetcher } from '../certificates/list-fetcher.ts';
import type { PkiThreads } from '../certificates/pki/threads.ts';
import type { RevocationLists } from '../certificates/revocation-lists.ts';
import type { Schemas } from '../entity/schemas/schemas.ts';
import type { IdentityContext } from '../identity/context.ts';
import type { BrokerState } from '../ports/broker-state.ts';
import type { Overlaps } from './credentials/overlaps.ts';
import type { AttachedFleets } from './devices/attached-fleets.ts';

/** The services that route modules of the registry get: those below them, and their own. */
export interface RegistryContext extends IdentityContext {
  broker: BrokerState;
  certificates: ClientCertificates;
  issuing: Issuing;
  issuedLists: IssuedLists;
  pki: PkiThreads;
  revocationLists: RevocationLists;
  listFetcher: ListFetcher;
  overlaps: Overlaps;
  attachedFleets: AttachedFleets;
  schemas: Schemas;
}
