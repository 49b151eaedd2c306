/** A label's QR code is the claim address and nothing else, on paper as SVG, PNG and in a sheet. */
import { inflateSync } from 'node:zlib';
import QRCode from 'qrcode';
import type { Label } from '../../src/factory/provisioning/unit.ts';
import { labelPng, labelSheet, labelSvg } from '../../src/factory/results/labels.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const label: Label = {
  serialNumber: 'SN-0001',
  deviceId: '0191d0c0-0000-7000-8000-00000000000d',
  associationCode: '0123-4567-89AB',
  claimUrl: 'https://things.example.com/claim?code=0123-4567-89AB',
};

const margin = 4;
/** The modules that the library draws for a text: rows of ones and zeros, with the quiet zone. */
function modulesOf(text: string): string[] {
  const { size, data } = QRCode.create(text, { errorCorrectionLevel: 'Q' }).modules;
  const blank = '0'.repeat(size + 2 * margin);
  const rows = Array.from({ length: size }, (_, row) => {
    const modules = Array.from(data.subarray(row * size, (row + 1) * size), (one) => (one ? '1' : '0'));
    return `${'0'.repeat(margin)}${modules.join('')}${'0'.repeat(margin)}`;
  });
  const edge = Array.from({ length: margin }, () => blank);
  return [...edge, ...rows, ...edge];
}

/** The modules of a path such as `M4 4.5h7m2 0h3M4 5.5h1`. */
function modulesOfPath(svg: string): string[] {
  const size = Number(/viewBox="0 0 (\d+) \1" shape/.exec(svg)?.[1]);
  const rows = Array.from({ length: size }, () => Array.from({ length: size }, () => '0'));
  let [x, y] = [0, 0];
  for (const [, command, first, second] of (/stroke="#000000" d="([^"]+)"/.exec(svg)?.[1] ?? '').matchAll(
    /([Mmh])(\d+)(?: ([\d.]+))?/g,
  )) {
    if (command === 'M') [x, y] = [Number(first), Math.floor(Number(second))];
    else if (command === 'm') x += Number(first);
    else for (const end = x + Number(first); x < end; x += 1) (rows[y] ?? [])[x] = '1';
  }
  return rows.map((row) => row.join(''));
}

/** The pixels of a PNG of 8-bit RGBA without interlacing: whether each is dark. */
function pixelsOf(png: Buffer): boolean[][] {
  t.equal(png.subarray(1, 4).toString(), 'PNG');
  const data: Buffer[] = [];
  let [width, kind] = [0, ''];
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    const chunk = png.subarray(at + 8, at + 8 + png.readUInt32BE(at));
    const name = png.toString('latin1', at + 4, at + 8);
    if (name === 'IHDR') [width, kind] = [chunk.readUInt32BE(0), chunk.subarray(8).join()];
    if (name === 'IDAT') data.push(chunk);
  }
  t.equal(kind, '8,6,0,0,0');
  const bytes = inflateSync(Buffer.concat(data));
  const stride = 4 * width;
  const rows: boolean[][] = [];
  let before = Buffer.alloc(stride);
  for (let at = 0; at < bytes.length; at += stride + 1) {
    const row = Buffer.from(bytes.subarray(at + 1, at + 1 + stride));
    const filter = bytes[at];
    for (let place = 0; place < stride; place += 1) {
      const [left = 0, up = 0, corner = 0] = [
        place >= 4 ? row[place - 4] : 0,
        before[place],
        place >= 4 ? before[place - 4] : 0,
      ];
      const paeth = [left, up, corner].reduce((best, one) =>
        Math.abs(left + up - corner - one) < Math.abs(left + up - corner - best) ? one : best,
      );
      const added = [0, left, up, Math.floor((left + up) / 2), paeth][filter ?? 0] ?? 0;
      row[place] = ((row[place] ?? 0) + added) & 255;
    }
    rows.push(Array.from({ length: width }, (_, x) => (row[4 * x] ?? 255) < 128));
    before = row;
  }
  return rows;
}

async function sheetOf(labels: Label[]): Promise<string> {
  async function* each() {
    yield* labels;
  }
  let sheet = '';
  for await (const part of labelSheet(each())) sheet += part;
  return sheet;
}

t.test('the SVG shows the QR code of the claim address, serial number and code', async (t) => {
  const svg = await labelSvg(label);
  t.strictSame(modulesOfPath(svg), modulesOf(label.claimUrl));
  t.match(svg, '>SN-0001</text>');
  t.match(svg, '>0123-4567-89AB</text>');
});

t.test('every pixel of the PNG belongs to its module', async (t) => {
  const pixels = pixelsOf(await labelPng(label));
  const modules = modulesOf(label.claimUrl);
  t.equal(pixels.length, 8 * modules.length);
  const drawn = pixels.map((row) => row.map((dark) => (dark ? '1' : '0')).join(''));
  const expected = modules.flatMap((row) => Array.from({ length: 8 }, () => row.replace(/./g, '$&'.repeat(8))));
  t.strictSame(drawn, expected);
});

t.test('a sheet holds each label once, for A4, and neither scripts nor addresses elsewhere', async (t) => {
  const others = Array.from({ length: 30 }, (_, n) => ({
    ...label,
    serialNumber: `SN-${n}`,
    claimUrl: `https://x/claim?code=${n}`,
  }));
  const sheet = await sheetOf(others);
  const figures = sheet.match(/<figure>.*?<\/figure>/gs) ?? [];
  t.strictSame(
    figures.map((figure) => modulesOfPath(figure)),
    others.map(({ claimUrl }) => modulesOf(claimUrl)),
  );
  t.match(sheet, /@page \{ size: A4/);
  t.match(sheet, /@media print/);
  t.notMatch(sheet, /<script|https?:(?!\/\/www\.w3\.org)/);
});

t.test('nothing in a serial number becomes markup', async (t) => {
  const nasty = { ...label, serialNumber: `<script>&"'\u0007</text>` };
  for (const shown of [await labelSvg(nasty), await sheetOf([nasty])]) {
    t.notMatch(shown, '<script>');
    t.notMatch(shown, '\u0007');
    t.match(shown, '&lt;script&gt;');
    t.match(shown, '&amp;');
  }
});

t.end();
