/** What is wrong with the issuer of a provider that somebody makes: it is asked once, as each login will ask it. */
import type { Row } from '../../../db/registry/records.ts';
import { NotPublic, type Targets } from '../../core/network/outbound.ts';

/** Milliseconds that a provider has. */
const deadline = 5000;
/** Characters of a name that a provider gives itself. */
const longest = 255;
const path = '/.well-known/openid-configuration';

/** A sentence for the admin; null where the issuer answers as it must. Never rejects. */
export async function issuerProblem(
  { targets }: { targets: Targets },
  provider: Pick<Row<'identityProviders'>, 'issuer' | 'clientId'>,
): Promise<string | null> {
  const { AnotherIssuer, discover, reasonOf } = await import('./openid.ts');
  const signal = AbortSignal.timeout(deadline);
  try {
    await discover(provider, signal, targets);
    return null;
  } catch (error) {
    const all = [error, (error as Error).cause];
    const refused = all.find((one) => one instanceof NotPublic);
    if (refused) return `The issuer is ${refused.message}.`;
    const itself = error instanceof AnotherIssuer ? error.issuer : namedIn(all);
    if (itself !== undefined)
      return `The provider calls itself ${JSON.stringify(itself.slice(0, longest))}: the issuer must be exactly that.`;
    if (signal.aborted) return `The issuer did not answer within ${deadline / 1000} seconds.`;
    const reason = reasonOf(error);
    const isOfNetwork = /^(E[A-Z]+|UND_|ERR_TLS|.*CERT.*|UNABLE_.*)/.test(reason) && reason !== 'Error';
    if (reason === 'ENOTFOUND') return 'The host of the issuer is not found (ENOTFOUND).';
    if (isOfNetwork) return `The issuer cannot be reached (${reason}).`;
    return `The issuer does not answer at ${path} with the configuration of a provider whose addresses are https (${reason}).`;
  }
}

/** The name in metadata that openid-client has refused. */
function namedIn(errors: readonly unknown[]): string | undefined {
  for (const one of errors) {
    const { attribute, body } = (one ?? {}) as { attribute?: unknown; body?: { issuer?: unknown } };
    if (attribute === 'issuer' && typeof body?.issuer === 'string') return body.issuer;
  }
  return undefined;
}
