/** A unit on the line: what its firmware is given, and what is on its label. */

export interface Unit {
  /** Of the job's input, from 1. */
  row: number;
  serialNumber: string;
  /** The broker username. */
  deviceId: string;
  accountId: string;
  /** The broker password; it leaves the service with this unit and is not kept. */
  secret: string;
  /** XXXX-XXXX-XXXX, for the label. */
  associationCode: string;
  /** The claim URL in the QR code of its label. */
  claimUrl: string;
  /** Where it connects: mqtt://host:port, or mqtts://host:port under TLS. */
  broker: string;
  /** Its topics by channel name, service channels included. */
  topics: Readonly<Record<string, string>>;
}

/** The values on a label. The secret is never among them. */
export interface Label {
  serialNumber: string;
  deviceId: string;
  associationCode: string;
  /** The claim URL in the QR code. */
  claimUrl: string;
}

/** The files that a flash tool reads, a file for each unit. */
export const flashFormats = ['esp-nvs-csv', 'env', 'c-header', 'json'] as const;
export type FlashFormat = (typeof flashFormats)[number];
