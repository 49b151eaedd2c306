/** The form of an email address that is compared: letter case makes no difference. */
export function emailKey(email: string): string {
  return email.normalize('NFKC').toLowerCase();
}
