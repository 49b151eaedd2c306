/** Properties of a person besides the email address: names, company, department, phone number, address. */

import { type Static, Type } from 'typebox';
import type { Row } from '../../db/registry/records.ts';
import { invalid } from '../core/errors.ts';

/** A text or an object, kept as it is given. */
export type Address = string | Record<string, unknown>;
const maxAddressLength = 1000;

const upTo = (maxLength: number) => Type.Optional(Type.Unsafe<string | null>({ type: ['string', 'null'], maxLength }));
/** Properties that people set themselves; null clears one. */
export const names = { name: upTo(255), firstName: upTo(255), lastName: upTo(255), phoneNumber: upTo(50) };
/** All that people say of themselves. */
export const personProperties = {
  ...names,
  company: upTo(255),
  department: upTo(255),
  address: Type.Optional(
    Type.Unsafe<Address | null>({
      type: ['string', 'object', 'null'],
      maxLength: maxAddressLength,
      description: `A text, or an object of at most ${maxAddressLength} characters as JSON.`,
    }),
  ),
};
export const personBody = Type.Object(personProperties);

/**
 * What a body says of a person, as it is stored; what it does not name is left out.
 * @throws PlatformError 400/106 for an address object that is too long; `path` is where the body stands.
 */
export function readPerson(given: Static<typeof personBody>, path = ''): Partial<Row<'identities'>> {
  const stored: Partial<Row<'identities'>> = {};
  for (const property of ['name', 'firstName', 'lastName', 'company', 'department', 'phoneNumber'] as const)
    if (given[property] !== undefined) stored[property] = given[property];
  const { address } = given;
  if (address === undefined) return stored;
  const isObject = typeof address === 'object' && address !== null;
  const addressObject = isObject ? JSON.stringify(address) : null;
  if (addressObject !== null && addressObject.length > maxAddressLength)
    throw invalid(`${path}address`, `must have at most ${maxAddressLength} characters as JSON`);
  return { ...stored, address: isObject ? null : address, addressObject };
}
