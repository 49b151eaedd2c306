/** `slipway cells write` */
import { readCellsFile } from '../../cells/config.ts';
import { writeCells } from '../../cells/haproxy/files.ts';
import { UsageError } from '../usage.ts';

/** Prints the paths of the files. @throws UsageError for a wrong `cells.yaml` */
export async function cellsWrite({ config: path, out }: { config: string; out: string }): Promise<void> {
  const config = readCellsFile(path);
  let paths: string[];
  try {
    paths = writeCells(config, out);
  } catch (error) {
    throw new UsageError(`The files cannot be written: ${(error as Error).message}.`);
  }
  for (const one of paths) process.stdout.write(`${one}\n`);
}
