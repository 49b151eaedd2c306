/** Files that people choose. */
import type { JSX } from 'preact';
import { texts } from '../../texts.ts';

/** For `onClick` of a field of files: without it a browser is silent when the same file is chosen again, as people do who have mended it. */
export function forgetFile({ currentTarget }: JSX.TargetedMouseEvent<HTMLInputElement>): void {
  currentTarget.value = '';
}

/** Browsers do not read a file that was changed after it was chosen. @throws Error that says so. */
export async function demandUnchanged(file: File): Promise<void> {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    throw new Error(texts.fileChanged);
  }
}
