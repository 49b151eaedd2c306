/** Labels of units: anyone who scans one comes to the page where the unit is claimed. They never hold the secret. */
import type { QRCodeToStringOptions } from 'qrcode';
import { LongWork } from '../../scheduler/long-work.ts';
import type { Label } from '../provisioning/unit.ts';
import type { Drawing, LabelAnswer } from './label-drawer.ts';

/** Readable when a quarter of the code is scratched away. */
const code = { errorCorrectionLevel: 'Q', margin: 4 } as const;

/** Loaded with the first label: most starts of the service and the command need none. */
async function qrCode() {
  return (await import('qrcode')).default;
}

/** A label of 60 by 30 mm: the QR code, and the serial number and code to read and type. */
export async function labelSvg(label: Label): Promise<string> {
  const square = await qrSquare(label);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="60mm" height="30mm" viewBox="0 0 60 30" font-family="sans-serif">
<rect width="60" height="30" fill="#fff"/>${square.replace('<svg ', '<svg width="30" height="30" ')}
${textLines(label)}
</svg>
`;
}

/** The QR code alone, 8 pixels a module. */
export async function labelPng(label: Label): Promise<Buffer> {
  return (await qrCode()).toBuffer(label.claimUrl, { ...code, type: 'png', scale: 8 });
}

/** Draws where it is called. */
export function drawLabel(drawing: Drawing, label: Label): Promise<LabelAnswer> {
  return { svg: labelSvg, png: labelPng, square: qrSquare }[drawing](label);
}

/** All labels as one page to print on A4, three in a row, eight rows a sheet; it needs no script and nothing from elsewhere. */
export async function* labelSheet(
  labels: AsyncIterable<Label>,
  draw: (drawing: Drawing, label: Label) => Promise<LabelAnswer> = drawLabel,
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

async function qrSquare({ claimUrl }: Label): Promise<string> {
  const options: QRCodeToStringOptions = { ...code, type: 'svg' };
  return (await (await qrCode()).toString(claimUrl, options)).trim();
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
