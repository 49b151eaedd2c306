/** The end of an account's id, which is unique in a registry and stands for it in its largest tables. */
export function accountKey(accountId: string): string {
  return accountId.slice(26);
}
