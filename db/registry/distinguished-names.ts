/** Names of subjects and issuers, compared as RFC 5280, 7.1, says: letter case and spacing make no difference. */
import { hash } from 'node:crypto';

/** A text of a name as it is compared. */
export function comparableText(text: string): string {
  return text.normalize('NFKC').toLowerCase().replace(/\s+/g, ' ').trim();
}

/** A name in one line (`O=Acme\, Inc, CN=Root`) as it is compared. */
export function comparableName(name: string): string {
  const attributesIn = (set: string) => (set.match(/(?:\\.|[^\\+])+/g) ?? []).map(comparableAttribute).sort();
  const sets = name.match(/(?:\\.|[^\\,])+/g) ?? [];
  return sets.map((set) => attributesIn(set).join('\t')).join('\n');
}

/** By which the CAs of a name are found: SHA-256, hex. */
export function nameHash(name: string): string {
  return hash('sha256', comparableName(name), 'hex');
}

function comparableAttribute(attribute: string): string {
  return comparableText(attribute.replace(/\\(.)/g, '$1')).replace(/^([^=]*)= /, '$1=');
}
