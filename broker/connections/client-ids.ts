/**
 * Private client ids, `<account>/<principal>/<client id>`, under which a connection and its session are known: the same
 * client id of two principals never meets. Nothing else makes one or takes one apart.
 */

/** Account and principal, with which every private client id of the principal begins. */
export function ownerId(accountId: string, principal: string): string {
  return `${accountId}/${principal}`;
}

export function privateClientId(accountId: string, principal: string, clientId: string): string {
  return `${ownerId(accountId, principal)}/${clientId}`;
}

/** The ownerId in a private client id. */
export function ownerIn(privateId: string): string {
  return privateId.split('/', 2).join('/');
}

/** The account in a private client id. */
export function accountIn(privateId: string): string {
  const end = privateId.indexOf('/');
  return end < 0 ? privateId : privateId.slice(0, end);
}

/** The principal in a private client id, or in an ownerId. */
export function principalIn(privateId: string): string {
  return privateId.split('/', 2)[1] ?? '';
}
