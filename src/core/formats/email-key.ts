/** The form of an email address that is compared: letter case makes no difference. */
export function emailKey(email: string): string {
  return email.normalize('NFKC').toLowerCase();
}

/** Whether two addresses are one mailbox. Look-alikes have one key, but mail servers take them for two mailboxes. */
export function isSameEmail(one: string, other: string): boolean {
  return inLowerCase(one) === inLowerCase(other);
}

/** ASCII only: other characters share a lower-case form. */
function inLowerCase(email: string): string {
  return email.replace(/[A-Z]/g, (capital) => capital.toLowerCase());
}
