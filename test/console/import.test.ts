/** Devices from files of spreadsheets: what is read of them, what is refused, and what a person sees before they are made. */
import { randomBytes } from 'node:crypto';
import { crc32, deflateRawSync } from 'node:zlib';
import { utils, type WorkSheet, write } from '@e965/xlsx';
import type { Browser, Page } from 'playwright-core';
import { readSheet } from '../../console/devices/sheet.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { openAs } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
});

const press = (page: Page, name: string | RegExp) =>
  page.getByRole('button', { name, ...(typeof name === 'string' && { exact: true }) }).click();
const inDialog = (page: Page, name: string) =>
  page.getByRole('dialog').getByRole('button', { name, exact: true }).click();

const sheet = (rows: unknown[][], cells: WorkSheet = {}) => Object.assign(utils.aoa_to_sheet(rows), cells);
function workbook(...sheets: WorkSheet[]): Buffer<ArrayBuffer> {
  const book = utils.book_new();
  for (const [at, one] of sheets.entries()) utils.book_append_sheet(book, one, `Sheet ${at + 1}`);
  return write(book, { type: 'buffer', compression: true });
}

type ZipFile = { name: string; content: Buffer | string; size?: number };

/** A ZIP of these files; `size` is what it says of the length of one. */
function zipOf(files: readonly ZipFile[]): Buffer<ArrayBuffer> {
  const locals: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { name, content, size = content.length } of files) {
    const packed = deflateRawSync(content);
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0);
    fields.writeUInt16LE(8, 4);
    fields.writeUInt32LE(crc32(content), 10);
    fields.writeUInt32LE(packed.length, 14);
    fields.writeUInt32LE(size, 18);
    fields.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from('PK\x03\x04'), fields, Buffer.from(name), packed]);
    const entry = Buffer.alloc(18);
    entry.writeUInt32LE(offset, 14 - 0);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\x00'), fields, rest, Buffer.from(name)]));
    locals.push(local);
    offset += local.length;
  }
  const all = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06', 'latin1');
  end.writeUInt16LE(files.length, 8);
  end.writeUInt16LE(files.length, 10);
  end.writeUInt32LE(all.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...locals, all, end]) as Buffer<ArrayBuffer>;
}

const main = 'http://schemas.openxmlformats.org/spreadsheetml/2006/main';
const relations = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships';
/** The parts of a workbook around its sheet. */
function partsAround(content: Buffer | string, more: readonly ZipFile[] = [], size?: number): ZipFile[] {
  const type = 'application/vnd.openxmlformats-officedocument.spreadsheetml';
  return [
    {
      name: '[Content_Types].xml',
      content: `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override PartName="/xl/workbook.xml" ContentType="${type}.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="${type}.worksheet+xml"/><Override PartName="/xl/sharedStrings.xml" ContentType="${type}.sharedStrings+xml"/><Override PartName="/xl/externalLinks/externalLink1.xml" ContentType="${type}.externalLink+xml"/></Types>`,
    },
    {
      name: 'xl/workbook.xml',
      content: `<workbook xmlns="${main}" xmlns:r="${relations}"><sheets><sheet name="A" sheetId="1" r:id="rId7"/></sheets></workbook>`,
    },
    {
      name: 'xl/_rels/workbook.xml.rels',
      content: `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId7" Type="${relations}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId8" Type="${relations}/sharedStrings" Target="sharedStrings.xml"/></Relationships>`,
    },
    ...more,
    { name: 'xl/worksheets/sheet1.xml', content, ...(size !== undefined && { size }) },
  ];
}
const sheetXml = (rows: string) => `<worksheet xmlns="${main}"><sheetData>${rows}</sheetData></worksheet>`;
const inline = (at: string, text: string) => `<c r="${at}" t="inlineStr"><is><t>${text}</t></is></c>`;

const readAll = async (source: Buffer<ArrayBuffer> | string) => {
  const found = await readSheet(typeof source === 'string' ? source : new Blob([source]));
  return 'fault' in found ? found.fault : [found.header, ...found.rows.map(({ cells }) => cells)];
};

t.test('cells are read as people see them: zeros in front, dates, long numbers, results of formulas', async (t) => {
  const first = sheet([['Seriennummer', 'Datum', 'IMEI', 'Preis', 'an', 'Summe', '']], {
    '!ref': 'A1:G4',
    A2: { t: 's', v: '00123' },
    A3: { t: 'n', v: 124, z: '00000' },
    A4: { t: 'n', v: 125, z: '"SN-"0000' },
    B2: { t: 'n', v: 46_355, z: 'm/d/yy' },
    B3: { t: 'n', v: 46_355, z: 'dd.mm.yyyy' },
    B4: { t: 'n', v: 46_355.75, z: 'yyyy-mm-dd hh:mm' },
    C2: { t: 'n', v: 356_938_035_643_809 },
    C3: { t: 'n', v: 0.1 + 0.2 },
    C4: { t: 's', v: '=HYPERLINK("http://example.com")' },
    D2: { t: 'n', v: 1234.5, z: '#,##0.00' },
    D3: { t: 'n', v: 0.25, z: '0%' },
    E2: { t: 'b', v: true },
    F2: { t: 'n', v: 3, f: '1+2' },
    F3: { t: 'e', v: 42 },
    F4: { t: 's', v: ' blanks \u00a0' },
  });
  t.strictSame(await readAll(workbook(first, sheet([['other'], ['sheet']]))), [
    ['Seriennummer', 'Datum', 'IMEI', 'Preis', 'an', 'Summe', ''],
    ['00123', '2026-11-29', '356938035643809', '1,234.50', 'true', '3'],
    ['00124', '29.11.2026', '0.3', '25%', '', '#N/A'],
    ['SN-0125', '2026-11-29 18:00', '=HYPERLINK("http://example.com")', '', '', 'blanks'],
  ]);
  const mac = utils.book_new(
    sheet([['a', 'b', 'c']], {
      '!ref': 'A1:C2',
      A2: { t: 'n', v: 44_893, z: 'm/d/yy' },
      B2: { t: 'n', v: 44_893, z: 'dd.mm.yyyy' },
      C2: { t: 'n', v: 44_893.75, z: 'yyyy-mm-dd hh:mm' },
    }),
  );
  mac.Workbook = { WBProps: { date1904: true } };
  t.strictSame(
    (await readAll(write(mac, { type: 'buffer' })))[1],
    ['2026-11-29', '29.11.2026', '2026-11-29 18:00'],
    'where days are counted from 1904, as on a Mac',
  );
  const late = await readSheet(new Blob([workbook(sheet([[], ['Nr'], [], ['A'], [''], ['B']]))]));
  t.match(late, { header: ['Nr'], rows: [{ line: 4 }, { line: 6 }] }, 'lines are those of the file');
});

t.test('files of other programs are read: names with a prefix, no places of cells, empty texts', async (t) => {
  const texts = `<sst xmlns="${main}"><si/><si><t>Nr</t></si><si><r><t>A</t></r><r><t>-1</t></r></si></sst>`;
  const shared = '<row><c t="s"><v>1</v></c></row><row><c t="s"><v>2</v></c></row><row><c t="s"><v>0</v></c></row>';
  const prefixed = `<x:worksheet xmlns:x="${main}"><x:sheetData>${shared.replaceAll(/<(?=\w)/g, '<x:').replaceAll('</', '</x:')}</x:sheetData></x:worksheet>`;
  for (const content of [sheetXml(shared), prefixed])
    t.strictSame(await readAll(zipOf(partsAround(content, [{ name: 'xl/sharedStrings.xml', content: texts }]))), [
      ['Nr'],
      ['A-1'],
    ]);
  const blank =
    '<row r="1"><c r="A1" t="inlineStr"/><c r="B1" t="inlineStr"><is><t>Nr</t></is></c></row><row r="2"><c r="B2"><v>7</v></c></row>';
  t.strictSame(await readAll(zipOf(partsAround(sheetXml(blank)))), [
    ['', 'Nr'],
    ['', '7'],
  ]);
  const long = workbook(sheet([['Nr'], [123], [2 ** 61]]));
  t.match(await readSheet(new Blob([long])), { fault: 'rounded', line: 3 }, 'digits that a spreadsheet has lost');
});

t.test('CSV and what is pasted have the separator of their header', async (t) => {
  for (const text of ['a;b\n1;2,5', 'sep=;\r\na;b\r\n1;2,5\r\n', 'a\tb\n1\t2,5', '"a","b"\n1,"2,5"'])
    t.strictSame(await readAll(text), [
      ['a', 'b'],
      ['1', '2,5'],
    ]);
  t.match(await readSheet('a;b\n1;2\n1;2;3'), { fault: 'badLine', line: 3 });
});

t.test(
  'what is no spreadsheet, too large or hostile is refused, and no more of it is unpacked than is allowed',
  async (t) => {
    const good = workbook(sheet([['Nr'], ['A']]));
    t.equal(await readAll(good.subarray(0, good.length - 30) as Buffer<ArrayBuffer>), 'damaged', 'cut off');
    const broken = Buffer.from(good);
    broken.fill(0xff, 40, 120);
    t.equal(await readAll(broken), 'damaged', 'bits are wrong');
    t.equal(await readAll(Buffer.concat([Buffer.from('PK'), randomBytes(5000)])), 'damaged', 'noise');
    t.equal(await readAll(zipOf([{ name: 'word/document.xml', content: '<x/>' }])), 'damaged', 'a text');
    t.equal(await readAll(Buffer.concat([Buffer.from('d0cf11e0a1b11ae1', 'hex'), randomBytes(600)])), 'locked');
    t.equal(await readAll(Buffer.concat([good, Buffer.alloc(20 * 1024 * 1024)])), 'tooLarge', 'more than 20 MiB');
    t.equal(await readAll(workbook(sheet([['Nr']]))), 'empty');
    t.equal(await readAll(''), 'empty');
    t.strictSame(
      await readAll(
        zipOf(partsAround(sheetXml(`<row r="1">${inline('A1', 'Nr')}</row><row r="2">${inline('A2', 'A')}</row>`))),
      ),
      [['Nr'], ['A']],
    );

    const zeros = Buffer.alloc(300 * 1024 * 1024, 0x20);
    const pieces = DecompressionStream;
    let unpacked = 0;
    globalThis.DecompressionStream = class extends pieces {
      constructor(...args: ConstructorParameters<typeof pieces>) {
        super(...args);
        const counted = this.readable.pipeThrough(
          new TransformStream({
            transform(piece, out) {
              unpacked += piece.length;
              out.enqueue(piece);
            },
          }),
        );
        Object.defineProperty(this, 'readable', { value: counted });
      }
    };
    t.teardown(() => {
      globalThis.DecompressionStream = pieces;
    });
    t.equal(await readAll(zipOf(partsAround(zeros))), 'tooLarge', 'a bomb that says so');
    t.ok(unpacked < 100_000, 'is not unpacked');
    t.equal(await readAll(zipOf(partsAround(zeros, [], 100))), 'tooLarge', 'a bomb that lies');
    t.ok(unpacked < 270 * 1024 * 1024, 'is unpacked to the limit');
    const elsewhere = [
      { name: 'xl/media/image1.png', content: zeros },
      { name: 'xl/worksheets/sheet2.xml', content: zeros },
    ];
    unpacked = 0;
    t.strictSame(
      await readAll(
        zipOf(
          partsAround(
            sheetXml(`<row r="1">${inline('A1', 'Nr')}</row><row r="2">${inline('A2', 'A')}</row>`),
            elsewhere,
          ),
        ),
      ),
      [['Nr'], ['A']],
    );
    t.ok(unpacked < 100_000, 'what is not read is not unpacked either');

    const rows = (count: number) =>
      Array.from({ length: count }, (_, at) => `<row r="${at + 1}"><c r="A${at + 1}"><v>${at}</v></c></row>`).join('');
    t.equal(await readAll(zipOf(partsAround(sheetXml(rows(200_002))))), 'tooMany');
    const most = await readSheet(new Blob([zipOf(partsAround(sheetXml(rows(200_001))))]));
    t.equal('rows' in most && most.rows.length, 200_000);
    t.equal(
      await readAll(
        zipOf(partsAround(sheetXml(`<row r="1">${inline('A1', 'Nr')}</row><row r="2">${inline('XFD2', 'A')}</row>`))),
      ),
      'tooLarge',
      'the last column',
    );
    t.equal(
      await readAll(
        zipOf(
          partsAround(
            sheetXml(`<row r="1">${inline('A1', 'Nr')}</row><row r="1048576">${inline('A1048576', 'A')}</row>`),
          ),
        ),
      ),
      'empty',
      'the last row',
    );
    const long = `<sst xmlns="${main}"><si><t>Nr</t></si><si><t>${'x'.repeat(1_000_000)}</t></si></sst>`;
    const repeated = Array.from(
      { length: 1000 },
      (_, at) => `<row r="${at + 1}"><c r="A${at + 1}" t="s"><v>${at > 0 ? 1 : 0}</v></c></row>`,
    ).join('');
    t.equal(
      await readAll(zipOf(partsAround(sheetXml(repeated), [{ name: 'xl/sharedStrings.xml', content: long }]))),
      'tooLarge',
      'one text, a thousand times',
    );
    const entities = `<!DOCTYPE x [<!ENTITY a "${'ha'.repeat(100)}"><!ENTITY b "${'&a;'.repeat(100)}"><!ENTITY c "${'&b;'.repeat(100)}">]>`;
    const laughs = await readAll(
      zipOf(
        partsAround(
          entities + sheetXml(`<row r="1">${inline('A1', 'Nr')}</row><row r="2">${inline('A2', '&c;')}</row>`),
        ),
      ),
    );
    t.ok(JSON.stringify(laughs).length < 200, 'entities are not expanded');
  },
);

t.test(
  'a spreadsheet is dropped, its columns are mapped, every row says what it makes, and they are made',
  async (t) => {
    const { page, errors, foreign } = await openAs(t, browser, service, 'devices');
    const { id: deviceTemplateId } = await service.template({ name: 'Pump' });
    await service.create('/devices', 'device', { serialNumber: 'XL-0002', deviceTemplateId });
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await press(page, 'Import CSV or Excel');
    await page.getByLabel('Excel or CSV file').waitFor();
    t.notOk(
      asked.some((url) => url.includes('/sheet')),
      'the reader is not loaded yet',
    );
    const content = workbook(
      sheet(
        [
          ['Produkt', 'Seriennr', 'Bezeichnung', 'Breite', 'egal'],
          ['Pump', 'XL-0001', 'Große Pumpe', 12.5, 'x'],
          ['Pump', 'XL-0002', 'da', 1, 'x'],
          ['Pump', 'XL-0003', 'falsch', 'nord', 'x'],
          ['', '', 'Standard', '', 'x'],
          ...Array.from({ length: 20 }, (_, at) => ['', `XL-1${String(at).padStart(3, '0')}`, '', '', 'x']),
        ],
        { B5: { t: 'n', v: 4, z: '"XL-"0000' } },
      ),
    );
    const files = await page.evaluateHandle(`(() => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([Uint8Array.of(${[...content]})], 'Geräte.xlsx'));
      return transfer;
    })()`);
    await page
      .getByRole('dialog')
      .getByText('Each row becomes a device')
      .dispatchEvent('drop', { dataTransfer: files });
    await page.getByText('24 rows; here are the first 10.').waitFor();
    const preview = page.getByRole('region', { name: 'The first rows' });
    t.equal(await preview.locator('tbody tr').count(), 10);
    await preview.getByRole('cell', { name: 'XL-0004' }).waitFor();
    await page.getByLabel('Seriennr is').selectOption('');
    await inDialog(page, 'Check');
    await page.getByRole('alert').getByText('Choose the column with the serial numbers.').waitFor();
    await page.getByLabel('Seriennr is').selectOption('Serial number');
    await page.getByLabel('Produkt is').selectOption('Product');
    await page.getByLabel('Bezeichnung is').selectOption('Name');
    await page.getByLabel('Breite is').selectOption('Latitude');
    await inDialog(page, 'Check');
    await page.getByText('22 devices will be made. 1 are there already, 1 cannot be made.').waitFor();
    const tried = page.getByRole('region', { name: 'Import devices' });
    await tried
      .getByRole('row', { name: '2 XL-0001 New device Product: Pump · Name: Große Pumpe · Latitude: 12.5' })
      .waitFor();
    await tried
      .getByRole('row', { name: /^4 XL-0003 Refused Latitude: must be a number between -90 and 90/ })
      .waitFor();
    await tried.getByRole('row', { name: '5 XL-0004 New device Name: Standard' }).waitFor();
    const nothing = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=XL-`);
    t.equal(nothing.devices.results.length, 1, 'nothing is made yet');
    await press(page, 'There already 1');
    await tried.getByRole('row', { name: /^2 XL-0001/ }).waitFor({ state: 'detached' });
    await tried.getByRole('row', { name: /^3 XL-0002 There already/ }).waitFor();
    t.equal(await tried.locator('tbody tr').count(), 1);
    await inDialog(page, 'Make 22 devices');
    await page.getByText('22 done, 1 failed, 1 skipped.').waitFor();
    const { devices } = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=XL-000`);
    t.strictSame(
      devices.results.map(({ serialNumber, name, latitude }) => [serialNumber, name ?? null, latitude]).sort(),
      [
        ['XL-0001', 'Große Pumpe', '12.5'],
        ['XL-0002', null, null],
        ['XL-0004', 'Standard', null],
      ],
    );
    await press(page, 'Import CSV or Excel');
    await page.getByLabel('Or paste rows').fill('BEZEICHNUNG\tBreite\tseriennr\nzwei\t2\tXL-2000');
    await inDialog(page, 'Continue');
    t.equal(await page.getByLabel('BEZEICHNUNG is').inputValue(), 'name', 'the browser remembers what a column was');
    t.equal(await page.getByLabel('seriennr is').inputValue(), 'serialNumber');
    t.strictSame(foreign, [], 'nobody else is asked');
    t.strictSame(errors, []);
  },
);

t.end();
