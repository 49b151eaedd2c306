/** What a flash tool reads is what the unit was given, whatever is in a serial number or a channel's name. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import type { Unit } from '../../src/factory/provisioning/unit.ts';
import { type FlashExtra, flashFile } from '../../src/factory/results/formats.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { nvsText, readNvs } from './nvs.ts';

const t = await part(import.meta);

const accountId = '0191d0c0-0000-7000-8000-000000000001';
const deviceId = '0191d0c0-0000-7000-8000-00000000000d';
const service = ['_log', '_rejected', '_set/fields', '_updates/fields'];

function unitOf(serialNumber: string, channels: string[]): Unit {
  const topic = (channel: string) => [channel, `slipway/v1/${accountId}/d/${deviceId}/${channel}`];
  return {
    row: 1,
    serialNumber,
    deviceId,
    accountId,
    secret: 'kJ3-_0123456789abcdefghijklmnopqrstuvwxyzABC',
    associationCode: '0123-4567-89AB',
    claimUrl: 'https://things.example.com/claim?code=0123-4567-89AB',
    broker: 'mqtts://[2001:db8::1]:8884',
    topics: Object.fromEntries([...service, ...channels].map(topic)),
  };
}

const pem = (label: string, lines: number) =>
  `-----BEGIN ${label}-----\n${'MIIBmzCCAUGgAwIBAgIUcUc4mC6nYALWtMgbZjjTu3aG9KIwCgYIKoZIzj0EAwIw\n'.repeat(lines)}-----END ${label}-----\n`;
const extra: FlashExtra = { ca: pem('CERTIFICATE', 20), certificate: pem('CERTIFICATE', 9), privateKey: pem('KEY', 3) };

/** Texts that break out of something, and any others; the service stores neither NUL nor half characters. */
const pieces = [
  "'",
  '"',
  '\\',
  '\n',
  '\r',
  '\r\n',
  '\n#',
  '#',
  ',',
  '$(id)',
  '`id`',
  '??/',
  '*/',
  '%s',
  '\\0',
  ' ',
  'é',
  '😀',
];
const anyText = fc.oneof(
  fc.string({ unit: fc.oneof(fc.constantFrom(...pieces), fc.string({ unit: 'binary', maxLength: 3 })), maxLength: 12 }),
  fc.string({ unit: 'grapheme-ascii', maxLength: 40 }),
);
const storable = (text: string) => text !== '' && !text.includes('\0') && text.isWellFormed();
const serialNumbers = anyText.filter(storable);
const channelNames = anyText.filter((name) => storable(name) && !/^_|[/+#]|\p{Cc}/u.test(name));
const units = fc
  .tuple(serialNumbers, fc.uniqueArray(channelNames, { maxLength: 4 }))
  .map(([serialNumber, channels]) => unitOf(serialNumber, channels));

/** All that a unit is given, in an order of its own. */
const textsOf = ({ serialNumber, topics, ...unit }: Unit) =>
  [
    unit.broker,
    '2001:db8::1',
    unit.deviceId,
    unit.secret,
    unit.accountId,
    serialNumber,
    ...Object.values(topics),
  ].sort();

t.test('JSON holds the unit, its broker in parts, and the certificates', async (t) => {
  fc.assert(
    fc.property(units, (unit) => {
      const { extension, content } = flashFile('json', unit, extra);
      const { broker, username, password, accountId, serialNumber, topics, ...more } = JSON.parse(content);
      assert.deepEqual(
        { extension, broker, username, password, accountId, serialNumber, topics, more },
        {
          extension: 'json',
          broker: { uri: unit.broker, host: '2001:db8::1', port: 8884, tls: true },
          username: unit.deviceId,
          password: unit.secret,
          accountId: unit.accountId,
          serialNumber: unit.serialNumber,
          topics: unit.topics,
          more: extra,
        },
      );
    }),
  );
  const plain = JSON.parse(flashFile('json', { ...unitOf('S', []), broker: 'mqtt://things.example.com' }).content);
  t.strictSame(plain.broker, { uri: 'mqtt://things.example.com', host: 'things.example.com', port: 1883, tls: false });
  t.notOk('ca' in plain);
});

t.test('the shell reads every value from env, and runs nothing', async (t) => {
  const file = join(temporaryDirectory(t), 'unit.env');
  fc.assert(
    fc.property(units, (unit) => {
      writeFileSync(file, flashFile('env', unit, extra).content);
      // Without what tap puts into every process of a test.
      const shell = ['-i', `PATH=${process.env.PATH}`, 'sh', '-ec', `set -a; . '${file}'; env -0`];
      const printed = execFileSync('env', shell);
      const all = printed.toString().split('\0');
      const read = all.flatMap((line) => (line.startsWith('DEVICE_') ? [line.slice(line.indexOf('=') + 1)] : []));
      const certificates = Object.values(extra);
      assert.deepEqual(read.sort(), [...textsOf(unit), '8884', '1', ...certificates].sort());
      assert.deepEqual(
        all.filter((line) => !/^(DEVICE_|PATH=|PWD=|OLDPWD=|_=|SHLVL=|$)/.test(line)),
        [],
      );
    }),
    { numRuns: 60 },
  );
});

/** The values of a header, read as C reads them: trigraphs and spliced lines first, adjacent literals joined. */
function readHeader(header: string): Map<string, string> {
  const trigraphs: Record<string, string> = {
    '=': '#',
    '/': '\\',
    "'": '^',
    '(': '[',
    ')': ']',
    '!': '|',
    '<': '{',
    '>': '}',
    '-': '~',
  };
  const spliced = header.replace(/\?\?([=/'()!<>-])/g, (_, one) => trigraphs[one] ?? '').replaceAll('\\\n', ' ');
  const values = new Map<string, string>();
  for (const line of spliced.split('\n')) {
    if (line === '' || /^#(ifndef|endif)|^#define SLIPWAY_UNIT_H$/.test(line)) continue;
    const [, name, literals = ''] = /^#define ([A-Z_a-z0-9]+) +((?:"(?:[^"\\]|\\.)*" *)+|\d+)$/.exec(line) ?? [];
    if (name === undefined || values.has(name)) throw new Error(`no definition, or a second one: ${line}`);
    const inner = /^\d/.test(literals)
      ? literals
      : [...literals.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, one]) => one).join('');
    if (/[^\x20-\x7e]/.test(inner)) throw new Error(`not ASCII: ${line}`);
    const bytes = inner.replace(/\\([0-7]{1,3}|n|.)/g, (_, code) => {
      if (code === 'n') return '\n';
      if (!/^[0-7]/.test(code)) throw new Error(`escape \\${code}`);
      return String.fromCharCode(Number.parseInt(code, 8));
    });
    values.set(name, Buffer.from(bytes, 'latin1').toString());
  }
  return values;
}

t.test('C reads every value from the header', async () => {
  fc.assert(
    fc.property(units, (unit) => {
      const { extension, content } = flashFile('c-header', unit, extra);
      assert.equal(extension, 'h');
      const certificates = Object.values(extra);
      assert.deepEqual(
        [...readHeader(content).values()].sort(),
        [...textsOf(unit), '8884', '1', ...certificates].sort(),
      );
    }),
  );
});

const hasCompiler = spawnSync('cc', ['--version']).status === 0;
t.test('a compiler reads the same', { skip: hasCompiler ? false : 'there is none' }, async (t) => {
  const directory = temporaryDirectory(t);
  const serialNumber = `a"b\\c??/d\n#e\r*/é😀\t9${'\u0007'}7%s'`;
  const unit = unitOf(serialNumber, ['Temp', 'temp', 'äöü', 'a b']);
  const { content } = flashFile('c-header', unit, extra);
  writeFileSync(join(directory, 'unit.h'), content);
  const strings = [...readHeader(content)].filter(([, value]) => !/^\d{1,4}$/.test(value));
  const prints = strings.map(([name]) => `fwrite(${name}, 1, sizeof ${name}, stdout);`).join('\n');
  const source = `#include <stdio.h>\n#include "unit.h"\n#include "unit.h"\nint main(void) { ${prints} return SLIPWAY_BROKER_PORT != 8884; }\n`;
  writeFileSync(join(directory, 'unit.c'), source);
  const flags = ['-std=c99', '-trigraphs', '-Wall', '-Wno-overlength-strings', '-Werror'];
  execFileSync('cc', [...flags, '-o', 'unit', 'unit.c'], { cwd: directory });
  const printed = execFileSync(join(directory, 'unit')).toString();
  t.strictSame(
    printed.split('\0').slice(0, -1),
    strings.map(([, value]) => value),
  );
  t.ok(printed.includes(serialNumber));
});

t.test('names of channels become names of topics that are the same for every unit, and never collide', async (t) => {
  const unit = unitOf('S', ['readings', 'Temp', 'temp', 'temp_c2aa35b9', 'äöü', 'a b']);
  const names = [...readHeader(flashFile('c-header', unit).content).keys()].filter((name) => name.includes('_TOPIC_'));
  t.match(names, [
    'SLIPWAY_TOPIC__LOG',
    'SLIPWAY_TOPIC__REJECTED',
    'SLIPWAY_TOPIC__SET_FIELDS',
    'SLIPWAY_TOPIC__UPDATES_FIELDS',
    'SLIPWAY_TOPIC_READINGS',
    /^SLIPWAY_TOPIC_TEMP_[0-9a-f]{8}$/,
    'SLIPWAY_TOPIC_TEMP',
    /^SLIPWAY_TOPIC_TEMP_C2AA35B9_[0-9a-f]{8}$/,
    /^SLIPWAY_TOPIC_____[0-9a-f]{8}$/,
    /^SLIPWAY_TOPIC_A_B_[0-9a-f]{8}$/,
  ]);
});

t.test('the NVS CSV keeps the rules of Espressif and gives back every value', async () => {
  fc.assert(
    fc.property(units, (unit) => {
      const { extension, content } = flashFile('esp-nvs-csv', unit, extra);
      assert.equal(extension, 'csv');
      const nvs = readNvs(content);
      const texts = [...nvs.keys()].flatMap((place) => nvsText(nvs, place) ?? []);
      assert.deepEqual(texts.sort(), [...textsOf(unit), ...Object.values(extra)].sort());
      assert.deepEqual(nvs.get('slipway/broker_port'), { encoding: 'u16', value: 8884 });
      assert.deepEqual(nvs.get('slipway/broker_tls'), { encoding: 'u8', value: 1 });
      assert.equal(nvsText(nvs, 'slipway/serial_number'), unit.serialNumber);
    }),
  );
});

t.test(
  'an ordinary unit has strings only, under keys that can be guessed; what no string can hold is a blob',
  async (t) => {
    const nvs = readNvs(flashFile('esp-nvs-csv', unitOf('SN-0001', ['readings']), extra).content);
    t.strictSame(
      [...nvs].map(([place, { encoding }]) => `${place} ${encoding}`),
      [
        'slipway/broker_uri string',
        'slipway/broker_host string',
        'slipway/broker_port u16',
        'slipway/broker_tls u8',
        'slipway/username string',
        'slipway/password string',
        'slipway/account_id string',
        'slipway/serial_number string',
        'slipway/ca_cert string',
        'slipway/client_cert string',
        'slipway/client_key string',
        'slipway_topics/_log string',
        'slipway_topics/_rejected string',
        'slipway_topics/_set/fields string',
        'slipway_topics/_updates/fields string',
        'slipway_topics/readings string',
      ],
    );
    const chain = { ca: pem('CERTIFICATE', 80) };
    const long = readNvs(flashFile('esp-nvs-csv', unitOf('é', ['ein langer Name']), chain).content);
    t.equal(long.get('slipway/ca_cert')?.encoding, 'base64');
    t.equal(nvsText(long, 'slipway/ca_cert'), chain.ca);
    t.equal(long.get('slipway/serial_number')?.encoding, 'base64');
    t.match([...long.keys()].at(-1), /^slipway_topics\/ein_la~[0-9a-f]{8}$/);
  },
);

t.test('the rules refuse what the generator would refuse or spoil', async (t) => {
  const head = 'key,type,encoding,value\nslipway,namespace,,\n';
  t.doesNotThrow(() => readNvs(`${head}a,data,string,"x ""y"",\nz"\n`));
  t.doesNotThrow(() => readNvs(`${head}a,data,i64,${-(2n ** 63n)}\nb,data,u64,${2n ** 64n - 1n}\nc,data,hex2bin,aF\n`));
  for (const [file, why] of [
    ['slipway,namespace,,\n', /header/],
    ['key,type,encoding,value\na,data,u8,1\n', /first entry is a namespace/],
    [`${head}a_key_of_16_bytes,data,u8,1\n`, /no key/],
    [`${head}ä,data,u8,1\n`, /no key/],
    [`${head}a,data,u8,256\n`, /no u8/],
    [`${head}a,data,i8,-129\n`, /no i8/],
    [`${head}a,data,u64,${2n ** 64n}\n`, /no u64/],
    [`${head}a,data,i64,${2n ** 63n}\n`, /no i64/],
    [`${head}a,data,u8,-1\n`, /no u8/],
    [`${head}a,data,hex2bin,abc\n`, /no hex/],
    [`${head}a,data,binary,x\n`, /encoding binary/],
    [`${head}a,file,string,secret.txt\n`, /type file/],
    [`${head}a,data,hex2bin,${'00'.repeat(508_001)}\n`, /more than 508000/],
    [`${head}${Array.from({ length: 254 }, (_, at) => `n${at},namespace,,\n`).join('')}`, /254 namespaces/],
    [`${head}a,data,float,1\n`, /encoding float/],
    [`${head}a,text,string,1\n`, /type text/],
    [`${head}a,data,string,é\n`, /not ASCII/],
    [`${head}a,data,string,${'x'.repeat(4000)}\n`, /more than 4000/],
    [`${head}a,data,string,${'x'.repeat(3968)}\n`, /into a page/],
    [`${head}a,data,string,x,y\n`, /4 columns/],
    [`${head}a,data,string,"x\n`, /open at the end/],
    [`${head}a,data,u8,1\na,data,u8,1\n`, /twice/],
    [`${head}a,data,base64,?\n`, /no base64/],
    [`${head}slipway,namespace,,\n`, /twice/],
  ] as const)
    t.throws(() => readNvs(file), why);
});

t.end();
