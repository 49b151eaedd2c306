/** A label's QR code is the claim address and nothing else, on paper as SVG, PNG and in a sheet. */
import { crc32, inflateSync } from 'node:zlib';
import type { Label } from '../../src/factory/provisioning/unit.ts';
import { labelPng, labelSheet, labelSvg } from '../../src/factory/results/labels.ts';
import { part } from '../support/part.ts';
import { type Points, scan, scanSvg } from '../support/scanned.ts';

const t = await part(import.meta);

const label: Label = {
  serialNumber: 'SN-0001',
  deviceId: '0191d0c0-0000-7000-8000-00000000000d',
  associationCode: '0123-4567-89AB',
  claimUrl: 'https://things.example.com/claim?code=0123-4567-89AB',
};

/** The points of a PNG of one bit a pixel, whose lines are as they are. */
function pointsOf(png: Buffer): Points {
  t.equal(png.toString('latin1', 0, 8), '\x89PNG\r\n\x1a\n');
  const chunks = new Map<string, Buffer>();
  for (let at = 8; at < png.length; ) {
    const end = at + 8 + png.readUInt32BE(at);
    t.equal(png.readUInt32BE(end), crc32(png.subarray(at + 4, end)));
    chunks.set(png.toString('latin1', at + 4, at + 8), png.subarray(at + 8, end));
    at = end + 4;
  }
  t.strictSame([...chunks.keys()], ['IHDR', 'IDAT', 'IEND']);
  const header = chunks.get('IHDR') as Buffer;
  const size = header.readUInt32BE(0);
  t.strictSame([...header.subarray(4)], [...header.subarray(0, 4), 1, 0, 0, 0, 0]);
  const lines = inflateSync(chunks.get('IDAT') as Buffer);
  t.equal(lines.length, size * (size / 8 + 1));
  return Array.from({ length: size }, (_, y) => {
    const line = lines.subarray(y * (size / 8 + 1), (y + 1) * (size / 8 + 1));
    t.equal(line[0], 0);
    return Array.from({ length: size }, (_, x) => (((line[1 + (x >> 3)] ?? 0) >> (7 - (x & 7))) & 1) === 0);
  });
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
  const svg = labelSvg(label);
  t.equal(scanSvg(svg), label.claimUrl);
  t.match(svg, '>SN-0001</text>');
  t.match(svg, '>0123-4567-89AB</text>');
});

t.test('the PNG is the QR code of the claim address, with a quiet zone and 8 pixels a module', async (t) => {
  const points = pointsOf(labelPng(label));
  t.equal(scan(points), label.claimUrl);
  t.ok(
    points
      .slice(0, 32)
      .flat()
      .every((dark) => !dark),
  );
  const modules = points.filter((_, y) => y % 8 === 0).map((row) => row.filter((_, x) => x % 8 === 0));
  t.strictSame(
    points,
    modules.flatMap((row) => Array(8).fill(row.flatMap((dark) => Array(8).fill(dark)))),
  );
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
    figures.map(scanSvg),
    others.map(({ claimUrl }) => claimUrl),
  );
  t.match(sheet, /@page \{ size: A4/);
  t.match(sheet, /@media print/);
  t.notMatch(sheet, /<script|https?:(?!\/\/www\.w3\.org)/);
});

t.test('nothing in a serial number becomes markup', async (t) => {
  const nasty = { ...label, serialNumber: `<script>&"'\u0007</text>` };
  for (const shown of [labelSvg(nasty), await sheetOf([nasty])]) {
    t.notMatch(shown, '<script>');
    t.notMatch(shown, '\u0007');
    t.match(shown, '&lt;script&gt;');
    t.match(shown, '&amp;');
  }
});

t.end();
