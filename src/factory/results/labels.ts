/** Labels of units: anyone who scans one comes to the page where the unit is claimed. They never hold the secret. */
import { crc32, deflateSync } from 'node:zlib';
import { qrModules, qrSvg } from '../../core/formats/qr-code.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import type { Label } from '../provisioning/unit.ts';
import type { Drawing, LabelAnswer } from './label-drawer.ts';

/** Readable when a quarter of the code is scratched away. */
const ecc = 'quartile';

/** A label of 60 by 30 mm: the QR code, and the serial number and code to read and type. */
export function labelSvg(label: Label): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="60mm" height="30mm" viewBox="0 0 60 30" font-family="sans-serif">
<rect width="60" height="30" fill="#fff"/>${qrSquare(label).replace('<svg ', '<svg width="30" height="30" ')}
${textLines(label)}
</svg>
`;
}

/** The QR code alone, 8 pixels a module: of one bit each, so that a module of a line is a byte. */
export function labelPng({ claimUrl }: Label): Buffer {
  const modules = qrModules(claimUrl, ecc);
  const header = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
  for (const at of [0, 4]) header.writeUInt32BE(8 * modules.length, at);
  const lines = modules.flatMap((row) =>
    Array<Buffer>(8).fill(Buffer.from([0, ...row.map((dark) => (dark ? 0 : 255))])),
  );
  const chunks = [pngChunk('IHDR', header), pngChunk('IDAT', deflateSync(Buffer.concat(lines))), pngChunk('IEND')];
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), ...chunks]);
}

function pngChunk(name: string, data = Buffer.alloc(0)): Buffer {
  const chunk = Buffer.concat([Buffer.alloc(4), Buffer.from(name), data, Buffer.alloc(4)]);
  chunk.writeUInt32BE(data.length);
  chunk.writeUInt32BE(crc32(chunk.subarray(4, -4)), chunk.length - 4);
  return chunk;
}

/** Draws where it is called. */
export function drawLabel(drawing: Drawing, label: Label): LabelAnswer {
  return { svg: labelSvg, png: labelPng, square: qrSquare }[drawing](label);
}

/** All labels as one page to print on A4, three in a row, eight rows a sheet; it needs no script and nothing from elsewhere. */
export async function* labelSheet(
  labels: AsyncIterable<Label>,
  draw: (drawing: Drawing, label: Label) => LabelAnswer | Promise<LabelAnswer> = drawLabel,
): AsyncIterable<string> {
  yield sheetHead;
  const longWork = new LongWork();
  for await (const label of labels) {
    await longWork.giveWay();
    const { serialNumber, associationCode, deviceId } = label;
    yield `<figure>${await draw('square', label)}<figcaption><b>${escaped(serialNumber)}</b><span>${escaped(associationCode)}</span><small>${escaped(deviceId)}</small></figcaption></figure>\n`;
  }
  yield '</main></body></html>\n';
}

const sheetHead = `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Labels</title><style>
@page { size: A4; margin: 10mm }
body { margin: 10mm; font: 9pt sans-serif }
main { display: grid; grid-template-columns: repeat(3, 60mm); gap: 2mm 5mm }
figure { margin: 0; width: 60mm; height: 32mm; display: flex; align-items: center; overflow: hidden; break-inside: avoid }
figure svg { width: 30mm; height: 30mm; flex: none }
figcaption { min-width: 0; display: grid; gap: 1mm; overflow-wrap: anywhere }
small { font-size: 5pt }
@media print { body { margin: 0 } }
</style></head><body><main>
`;

function qrSquare({ claimUrl }: Label): string {
  return qrSvg(claimUrl, ecc);
}

/** Long serial numbers go on in a second line, and no further. */
function textLines({ serialNumber, associationCode }: Label): string {
  const characters = [...serialNumber];
  const lines = [characters.slice(0, 16), characters.slice(16, 32)].map((line) => line.join(''));
  if (characters.length > 32) lines[1] = `${lines[1]?.slice(0, -1)}…`;
  const texts = [...lines.filter((line) => line !== ''), associationCode];
  return texts
    .map((text, line) => `<text x="31" y="${10 + 5 * line}" font-size="3.2">${escaped(text)}</text>`)
    .join('\n');
}

/** For HTML and XML alike; what XML cannot hold at all is shown as a replacement character. */
function escaped(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
  const readable = text.replace(/[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]/g, '\ufffd').toWellFormed();
  return readable.replace(/[&<>"']/g, (character) => names[character] ?? '');
}
