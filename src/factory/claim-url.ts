/** The claim URL in the QR code of a label, with the unit's code. */
export function withCode(claim: string, code: string, accountId: string): string {
  const url = new URL(claim);
  url.searchParams.set('code', code);
  url.searchParams.set('account', accountId);
  return url.href;
}
