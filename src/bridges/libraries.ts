/** The client libraries that Slipway does not bring: the operator installs those of the kinds of targets in use. */
import type { TargetKind } from './target.ts';

/** Which libraries of a kind of target are missing, and how to install them; undefined if none is. */
export function missingLibraries({ libraries }: TargetKind): string | undefined {
  if (libraries.every(isInstalled)) return undefined;
  return `needs packages that are not installed: run \`npm install ${libraries.join(' ')}\` where Slipway is installed`;
}

function isInstalled(name: string): boolean {
  try {
    import.meta.resolve(name);
    return true;
  } catch {
    return false;
  }
}
