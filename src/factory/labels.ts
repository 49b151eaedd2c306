/** Placeholder: the line's branch has the real one. */
import type { Label } from './unit.js';

export async function labelSvg({ claimUrl }: Label): Promise<string> {
  return `<svg xmlns="http://www.w3.org/2000/svg"><desc>${claimUrl}</desc></svg>`;
}

export async function labelPng({ claimUrl }: Label): Promise<Buffer> {
  return Buffer.from(claimUrl);
}

export async function* labelSheet(labels: AsyncIterable<Label>): AsyncIterable<string> {
  yield '<!doctype html><main>';
  for await (const { serialNumber, associationCode } of labels)
    yield `<p>${serialNumber.replaceAll('<', '&lt;')} ${associationCode}</p>`;
  yield '</main>';
}
