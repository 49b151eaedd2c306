/** How much is measured, and what every scenario is given. */
import type { Row } from './figures.ts';
import type { Processes } from './processes.ts';

export interface Size {
  /** Devices where a registry of the usual size is meant, a large one, and those that the cost is to grow over. */
  registry: number;
  large: number;
  growth: number[];
  /** Devices that connect, units of a job, points of time-series. */
  fleet: number;
  units: number;
  points: number;
  /** Milliseconds of measuring a rate, after a fifth of it to warm up. */
  duration: number;
  /** The same where a rate is measured in several rounds. */
  roundTime: number;
  /** How often the same is asked or done where its time is measured, and how often a whole comparison is made. */
  asks: number;
  rounds: number;
  /** Milliseconds until an idle process has come to rest, and V8 has returned garbage. */
  rest: number;
}

export const full: Size = {
  registry: 100_000,
  large: 1_000_000,
  growth: [1000, 10_000, 100_000, 1_000_000],
  fleet: 10_000,
  units: 50_000,
  points: 10_000_000,
  duration: 5000,
  roundTime: 3000,
  asks: 60,
  rounds: 3,
  rest: 120_000,
};

/** Shows that everything works; its figures say little. */
export const quick: Size = {
  registry: 5000,
  large: 20_000,
  growth: [1000, 20_000],
  fleet: 500,
  units: 5000,
  points: 300_000,
  duration: 1000,
  roundTime: 1000,
  asks: 10,
  rounds: 1,
  rest: 2000,
};

/** What a scenario leaves running is ended after it. */
export interface Bench extends Processes {
  size: Size;
  /** Names of parts of a scenario that are to run alone; none for all. */
  only: readonly string[];
  /** A directory with so many devices in its registry (none: with nothing in it), which goes when the scenario ends. */
  directory(devices: number): Promise<string>;
}

export type Scenario = (bench: Bench) => Promise<Row[]>;
