/** What the demo reads of answers, and what its parts hand on. */
import type { MqttClient } from 'mqtt';

export interface Session {
  jwt: string;
}

export interface Login {
  emailAddress: string;
  password: string;
}

/** Anything that the demo makes: organizations, templates, devices, packages. */
export interface MadeEntity {
  id: string;
  version: string;
}

export interface List<T> {
  results: T[];
  meta: { count: number };
}

export type Call = <T>(method: string, path: string, body?: unknown, headers?: Record<string, string>) => Promise<T>;
export type Make = (path: string, body: object) => Promise<MadeEntity>;

export interface FleetOptions {
  url: string;
  mqttPort: number;
  accountId: string;
  emailAddress: string;
  password: string;
  deviceCount: number;
  /** How many of them are online and publish. */
  onlineCount: number;
  say: (line: string) => void;
}

export interface Online {
  client: MqttClient;
  device: FleetDevice;
  at: number;
}

export interface FleetDevice {
  id: string;
  serialNumber: string;
  secret: string;
  product: string;
  /** Of its readings. */
  topics: string;
}
