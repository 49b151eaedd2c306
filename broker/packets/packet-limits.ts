/** How long a packet may be, checked before its bytes are collected. */
import { OverLimit } from '../connections/limits.ts';
import { types } from './codec.ts';
import { faults, Malformed } from './fields.ts';

/** Bytes; Infinity for no limit. */
export interface PacketLimits {
  /** The CONNECT packet, after its fixed header. */
  connect: number;
  publish: number;
  /** What the properties of a PUBLISH may add. */
  properties: number;
  other: number;
}

/** @throws Malformed, OverLimit */
export function checkConnect({ connect }: PacketLimits, first: number, length: number): void {
  if (first !== types.connect << 4) throw new Malformed('not a CONNECT');
  if (length > connect) throw new OverLimit('max_packet_bytes_before_connect');
}

/** Checks a packet after CONNECT. @throws Malformed, OverLimit */
export function checkLength(
  limits: PacketLimits,
  level: number | undefined,
  first: number,
  length: number,
  isShortest: boolean,
): void {
  if (!isShortest && level === 5) throw new Malformed('a length of too many bytes');
  if (first >> 4 === types.publish) {
    const properties = level === 5 ? limits.properties : 0;
    if (length > limits.publish + properties) throw new OverLimit('max_payload_bytes');
  } else if (length > limits.other) throw new Malformed('packet too large', { code: faults.tooLarge });
}
