/** What the QR code of a label holds: where its unit is claimed, with its code. */
export function withCode(claim: string, code: string, accountId: string): string {
  const url = new URL(claim);
  url.searchParams.set('code', code);
  url.searchParams.set('account', accountId);
  return url.href;
}
