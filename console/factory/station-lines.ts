/** What the line's computer needs of a new station: lines for its terminal, or for the file .env. */
export function stationLines(
  url: string,
  accountId: string,
  { id, appToken }: { id: string; appToken?: string },
): string {
  return `export SLIPWAY_URL=${url}\nexport SLIPWAY_ACCOUNT_ID=${accountId}\nexport SLIPWAY_APP_ID=${id}\nexport SLIPWAY_TOKEN=${appToken}`;
}
