/** What the story of a page gets: it runs the blocks of the page one after another, and checks what they print. */
import { spawnSync } from 'node:child_process';
import type { Test } from 'tap';
import type { Mailbox } from '../../support/mailbox.ts';
import type { Service } from '../../support/service.ts';
import type { Shell, ShellOptions } from './shell.ts';

/** A service with a certificate, and what its clients need to know of it. */
export interface Secure {
  service: Service;
  caFile: string;
  mqttsPort: number;
}

export interface Told {
  t: Test;
  /** Takes the next block of the page. */
  next(): string;
  /** Leaves out the next blocks: a tool that they need is not here. */
  skip(count: number, reason: string): void;
  /** The service, in an account of this page, and the login of its admin. */
  service: Service;
  email: string;
  password: string;
  mailbox: Mailbox;
  secure(): Promise<Secure>;
  /** The terminal of a reader who begins with README and goes on with other pages, in the account of README. */
  newcomer: Shell;
  /** Another terminal. The usual addresses lead to the service in all of them. */
  shell(options?: ShellOptions): Shell;
}

export interface Story {
  /** It goes on in the account of README. */
  goesOn?: true;
  tell(told: Told): Promise<void>;
}

export const has = (command: string) => spawnSync('sh', ['-c', `command -v ${command}`]).status === 0;
