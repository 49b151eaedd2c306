/** What a device asks for, and how it is read where no route has checked it. */
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { invalid } from '../../core/errors.ts';
import { readSerialNumber } from '../../core/formats/serial-numbers.ts';
import { findUnstorable, unstorable } from '../../core/formats/unstorable.ts';
import type { EnrollmentRequest } from '../../ports/enrollment.ts';

const maxSerialNumberLength = 255;

export const requestProperties = {
  serialNumber: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: maxSerialNumberLength,
      description: 'Required with a claim secret; otherwise it must agree with the proof.',
    }),
  ),
  csr: Type.Optional(Type.String({ maxLength: 16_384, description: 'PEM, or the DER in base64.' })),
  firmwareVersion: Type.Optional(Type.String({ maxLength: 255 })),
  fields: Type.Optional(
    Type.Record(Type.String(), Type.Unknown(), {
      maxProperties: 200,
      description: 'Custom fields of the device template, for a new device.',
    }),
  ),
  previousSecret: Type.Optional(
    Type.String({ maxLength: 256, description: 'The secret of a device that has connected already.' }),
  ),
};
const requestShape = Type.Object(requestProperties);

/** @throws PlatformError 400/106 naming what is wrong. */
export function readRequest(given: unknown): EnrollmentRequest {
  if (Value.Check(requestShape, given)) {
    const path = findUnstorable(given);
    if (path !== undefined) throw invalid(path, unstorable);
    return given as EnrollmentRequest;
  }
  const [first] = Value.Errors(requestShape, given);
  throw invalid(first?.instancePath.slice(1).replaceAll('/', '.') || 'body', first?.message ?? 'is invalid');
}

/** The serial number of the request, or the one that has been proven. @throws PlatformError 400/106 without either. */
export function demandSerialNumber({ serialNumber }: EnrollmentRequest, proven: string | undefined): string {
  const found = serialNumber ?? proven;
  if (found === undefined) throw invalid('serialNumber', 'is required');
  if (found === '' || found.length > maxSerialNumberLength)
    throw invalid('serialNumber', `must be a text of 1 to ${maxSerialNumberLength} characters`);
  // One that has been proven came in a username or in a certificate.
  if (findUnstorable(found) !== undefined) throw invalid('serialNumber', unstorable);
  return readSerialNumber(found);
}
