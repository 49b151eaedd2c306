/** Opens the client, and perhaps a directory, for a command of the line, and closes them however it ends. */
import { keepToken } from '../saved-login.ts';
import type { Client } from './client.ts';
import { Journal } from './journal.ts';
import { type FileChoice, type Line, readAddresses, settleJournal } from './line.ts';
import { type Connection, connect } from './options.ts';

type PrintLine = (sentence: string) => void;

/** Works with a client that is logged in. @throws as connect, and what `work` throws. */
export async function withClient<T>(
  flags: Connection,
  printLine: PrintLine,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await connect(flags, printLine);
  try {
    return await work(client);
  } finally {
    keepToken(client);
    client.close();
  }
}

export interface UnitPlace {
  out: string;
  /** Where only this unit is looked at. */
  serialNumber?: string;
  files: FileChoice;
  printLine: PrintLine;
}

/**
 * Works in a directory, alone there. It is opened while the server lets the client in: the one waits for the disk and the
 * other for the network. @throws as connect, readAddresses, Journal.open and settle, and what `work` throws.
 */
export async function withLine(
  flags: Connection,
  place: UnitPlace,
  work: (line: Line) => Promise<void>,
): Promise<void> {
  const { out, serialNumber, files, printLine } = place;
  const giveUp = new AbortController();
  const connecting = connect(flags, printLine, giveUp.signal);
  const reading = connecting.then((client) => readAddresses(client, files.broker));
  // Heard where they are awaited.
  for (const promise of [connecting, reading]) promise.catch(() => {});
  const journal = await Journal.open(out, serialNumber).catch((error) => {
    giveUp.abort();
    throw error;
  });
  try {
    const client = await connecting;
    try {
      await settleJournal(journal, { accountId: client.accountId, format: files.format, labels: files.labels });
      await work({ client, journal, printLine, ...files, ...(await reading) });
    } finally {
      client.close();
    }
  } finally {
    await journal.close();
  }
}
