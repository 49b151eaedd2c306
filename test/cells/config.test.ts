/** `cells.yaml`: what it may say, what is refused, and what becomes of it in the map files. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cellOfAccount, readCells, readCellsFile, withSlotMoved } from '../../cells/config.ts';
import { cellsFiles } from '../../cells/haproxy/files.ts';
import { mapsOf } from '../../cells/haproxy/maps.ts';
import { UsageError } from '../../cli/usage.ts';
import { newAccountId, newId, readSlots, slotsText } from '../../src/core/ids.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const example = `# Two machines
cells:
  c01: { address: 10.0.0.11, http: 3000, mqtt: 1883, mqtts: 8883, slots: 000-7ff } # the old one
  c02: { address: cell-2.example.com, slots: 800-fff, tls: true }
public: { http: 443, mqtt: 1883, mqtts: 8883, certificate: /etc/haproxy/site.pem, adminSocket: /run/haproxy/admin.sock }
accounts:
  01890a5d-ac96-774b-bcce-b39980209057:
    - 01890a5d-ac96-774b-bcce-b302fff80057
    - Press-4711
`;

function refusal(text: string): string {
  try {
    readCells(text);
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  return 'accepted';
}

t.test('a file is read with its defaults, and every slot has a cell', async (t) => {
  const config = readCells(example);
  const { slots, ...second } = config.cells.get('c02') ?? { slots: [] };
  t.strictSame(second, { name: 'c02', address: 'cell-2.example.com', http: 3000, mqtt: 1883, mqtts: 8883, tls: true });
  t.equal(slots.length, 2048);
  t.equal(config.cellOfSlot.size, 4096);
  t.equal(config.cellOfSlot.get('7ff'), 'c01');
  t.equal(config.cellOfSlot.get('800'), 'c02');
  t.equal(config.public.certificate, '/etc/haproxy/site.pem');
  t.equal(cellOfAccount(config, '01890a5d-ac96-774b-bcce-b39980209057'), 'c02');
});

t.test('the map files have each slot, each listed id with the slot of its account, and each host name', async (t) => {
  const maps = mapsOf(readCells(example));
  t.equal(maps['slots.map']?.split('\n').length, 4097);
  t.match(maps['slots.map'], /^000 c01\n001 c01\n/);
  t.match(maps['slots.map'], /\n7ff c01\n800 c02\n/);
  t.equal(maps['ids.map'], '01890a5d-ac96-774b-bcce-b302fff80057 998\npress-4711 998\n');
  t.equal(maps['hosts.map'], 'c01 c01\nc02 c02\n');
});

t.test('slots that look like numbers are slots, alone, in ranges and in lists', async (t) => {
  const config = readCells(`cells:
  a: { address: '::1', slots: [000-0ff, 100, 1e3] }
  b: { address: b, slots: "101-1e2, 1e4-fff" }`);
  t.equal(slotsText(config.cells.get('a')?.slots ?? []), '000-100, 1e3');
  t.equal(slotsText(config.cells.get('b')?.slots ?? []), '101-1e2, 1e4-fff');
  for (const wrong of ['', '00', '1000', '7ff-000', '000-0ff,0ff', 'FFF', 'xyz'])
    t.equal(readSlots(wrong), undefined, wrong);
});

t.test('every fault is told at once, with its line', async (t) => {
  const told = refusal(`cells:
  c01: { address: 10.0.0.300, http: 70000, slots: 000-8ff }
  c02: { slots: 800-ffe, mqtts: abc, colour: red }
  any: { address: 10.0.0.1, tls: yes }
public: { certificate: "site.pem # x" }
accounts:
  someone: [a b, x]
`);
  for (const line of [
    "cells.yaml:2: cells.c01.address: '10.0.0.300' is neither an IP address nor a host name.",
    'cells.yaml:2: cells.c01.http: a port from 1 to 65535 is expected.',
    'cells.yaml:3: cells.c02.address is required: an IP address or a host name.',
    'cells.yaml:3: cells.c02.mqtts: a port from 1 to 65535 is expected.',
    "cells.yaml:3: cells.c02: 'colour' is unknown; known are address, http, mqtt, mqtts, tls, slots.",
    "cells.yaml:4: cells.any: the name of a cell has 1 to 32 lower-case letters, digits and hyphens, and is not 'any' or 'slot-…'.",
    'cells.yaml:4: cells.any.tls: true or false is expected.',
    'cells.yaml:2: cells.c02.slots: 800-8ff already belongs to another cell.',
    'cells.yaml:2: cells: no cell has the slots fff. Every slot from 000 to fff needs a cell.',
    'cells.yaml:5: public.certificate: an absolute path of letters, digits and . _ @ + : - is expected.',
    'cells.yaml:7: accounts.someone: the id of an account is a UUID in lower case.',
    "cells.yaml:7: accounts.someone: 'a b' is not an id.",
  ])
    t.ok(told.split('\n').includes(line), line);
  t.equal(told.split('\n').length, 12, told);
  t.match(refusal('cells: { a: {'), /^cells\.yaml:1: /);
  t.equal(refusal(''), 'cells.yaml: cells: at least one cell is required.');
  t.match(refusal('- a'), /names with values are expected/);
  t.match(refusal('public: { lookup: some }'), "cells.yaml:1: public.lookup: 'foreign' or 'all' is expected.");
});

t.test('a slot is given to another cell, and comments and everything else stay', async (t) => {
  const moved = withSlotMoved(example, '123', 'c02');
  const config = readCells(moved);
  t.equal(config.cellOfSlot.get('123'), 'c02');
  t.equal(slotsText(config.cells.get('c01')?.slots ?? []), '000-122, 124-7ff');
  t.match(moved, '# Two machines');
  t.match(moved, '# the old one');
  const back = readCells(withSlotMoved(moved, '123', 'c01'));
  t.strictSame([...back.cellOfSlot].sort(), [...readCells(example).cellOfSlot].sort());
  t.equal(withSlotMoved(example, '123', 'c01'), example, 'where it is already, nothing changes');
  t.throws(() => withSlotMoved(example, '123', 'c09'), {
    message: 'There is no cell c09 in cells.yaml. Its cells are c01, c02.',
  });
  t.throws(() => withSlotMoved(example, 'x', 'c02'), { message: /^x is not a slot/ });
});

t.test('the rules of deploy/haproxy are what slipway cells write makes of its cells.yaml', async (t) => {
  const example = fileURLToPath(new URL('../../deploy/haproxy', import.meta.url));
  const files = cellsFiles(readCellsFile(join(example, 'cells.yaml')), '/etc/haproxy/slipway');
  const rules = join(example, 'haproxy.cfg');
  // To make them again: UPDATE_EXAMPLES=1 npx tap test/commands/cells/config.test.ts
  if (process.env.UPDATE_EXAMPLES) writeFileSync(rules, files['haproxy.cfg'] ?? '');
  t.equal(readFileSync(rules, 'utf8'), files['haproxy.cfg']);
});

t.test('of 100,000 ids none is looked up at the wrong cell', async (t) => {
  const config = readCells(example);
  const lines = mapsOf(config)['slots.map']?.trim().split('\n') ?? [];
  const map = new Map(lines.map((line) => line.split(' ') as [string, string]));
  const accounts = Array.from({ length: 1000 }, () => newAccountId(new Map()));
  const cellsOf = accounts.map((accountId) => cellOfAccount(config, accountId));
  let wrong = 0;
  for (let n = 0; n < 100_000; n += 1) {
    const id = newId(accounts[n % 1000] ?? '');
    // As HAProxy does: bytes(26,3),map_str(slots.map).
    if (map.get(id.slice(26, 29)) !== cellsOf[n % 1000]) wrong += 1;
  }
  t.equal(wrong, 0);
});

t.end();
