/** What a device may say about firmware and commands: CBOR on its control topic, JSON in reports and replies, right and spoilt. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Encoder } from 'cbor-x';
import fc, { type Arbitrary } from 'fast-check';
import { openLink, publishBytes } from '../../bench/link.ts';
import type { Known } from './cast.ts';
import { hostileText, hostileValue, type Spoil, spoil, spoils } from './hostile.ts';

/** Milliseconds for the last acknowledgement, on a busy machine too. */
const patience = 10_000;
/** Bytes of a message: a larger one ends the connection. */
const maxBytes = 100_000;
const encoder = new Encoder({ useRecords: false, tagUint8Array: false, mapsAsObjects: true });

export interface Said {
  channel: 'control' | 'firmwareStatus' | 'replies';
  value: unknown;
  /** In place of the value, as hex. */
  raw?: string | undefined;
  spoils: Spoil[];
}

const mostly = <T>(usual: Arbitrary<T>): Arbitrary<unknown> =>
  fc.oneof({ weight: 9, arbitrary: usual }, { weight: 1, arbitrary: hostileValue });
const name = fc.oneof(fc.constantFrom('app.bin', 'app.bin', 'constructor', '__proto__', 'none'), hostileText);
const revision = fc.constantFrom('1', '1', '2', '');
const place = fc.oneof(
  fc.constantFrom(0, 0, 1, 999, 1000, -1, 1.5, 2 ** 32, 2 ** 53, 1e300, Number.NaN),
  fc.constantFrom<unknown>(2n ** 63n, -(2n ** 63n), true, null),
);
const file = fc.record({ N: mostly(name), R: mostly(revision) }, { requiredKeys: [] });
const control = fc.record(
  {
    msgtype: mostly(fc.constantFrom(0, 2, 4, 2, 4, 1, 3, 9)),
    msgver: fc.constantFrom<unknown>(1, 1, 1, 1, 1, 2, '1'),
    list: mostly(fc.array(mostly(file), { maxLength: 70 })),
    N: mostly(name),
    R: mostly(revision),
    O: place,
    L: place,
    P: mostly(fc.constantFrom(2, 3, 4, 5, 1, 6)),
    S: mostly(fc.constantFrom(0, 0, -1, -8, 1, -129, 0.5)),
    C: fc.constant(Buffer.alloc(100)),
  },
  { requiredKeys: ['msgtype', 'msgver'] },
);
/** Lengths that lie, nesting, ends that never come, keys that are no texts. */
const bombs = fc.constantFrom(
  ...['bf', '9f', 'bf6161', 'bf6161ff', '7f6161ff', 'ff', 'a1', 'bbffffffffffffffff', '9b0000000100000000', 'f8ff'],
  ...[
    '7bffffffffffffffff',
    '5a7fffffff',
    'd9dfff80',
    'd9d9f7',
    'd9d9f7a0',
    'd8184100',
    'a10101',
    'c249010000000000000000',
  ],
  ...['9f', '81', 'bf6161', 'a16161', 'c1'].flatMap((unit) => [unit.repeat(500), unit.repeat(6000)]),
  `bf${'616101'.repeat(2000)}ff`,
  `b90400${'616101'.repeat(1024)}`,
);
const report = fc.record(
  {
    state: mostly(fc.constantFrom('downloading', 'downloaded', 'installing', 'failed', 'done')),
    firmwareVersion: mostly(fc.constantFrom('1', '2')),
    bytes: mostly(fc.constantFrom(0, 1000, -1, 2 ** 53)),
    code: mostly(fc.constantFrom(0, -1, 2 ** 31)),
    message: mostly(hostileText),
  },
  { requiredKeys: [] },
);
const reply = fc.record(
  {
    id: mostly(fc.constantFrom('«command»', 'x')),
    status: mostly(fc.constantFrom('accepted', 'failed')),
    result: hostileValue,
  },
  { requiredKeys: [] },
);
const said = <T>(channel: Said['channel'], weight: number, value: Arbitrary<T>) => ({
  weight,
  arbitrary: fc.record({
    channel: fc.constant(channel),
    value: mostly(value),
    spoils: fc.oneof({ weight: 3, arbitrary: fc.constant<Spoil[]>([]) }, { weight: 1, arbitrary: spoils }),
  }) as Arbitrary<Said>,
});

export const saying: Arbitrary<Said[]> = fc.array(
  fc.oneof(
    said('control', 6, control),
    { weight: 2, arbitrary: bombs.map((raw): Said => ({ channel: 'control', value: null, raw, spoils: [] })) },
    said('firmwareStatus', 2, report),
    said('replies', 2, reply),
  ),
  { minLength: 1, maxLength: 12 },
);

/** Says it as the device. @throws Error when the connection ends, or something is not acknowledged. */
export async function say(all: Said[], known: Known, port: number): Promise<void> {
  const { device: username = '', secret: password = '' } = known;
  let left = all.length;
  let acknowledged = () => {};
  const done = new Promise<string>((resolve) => {
    acknowledged = () => resolve('');
  });
  const link = await openLink({ port }, { username, password, clientId: 'downlink' }, ({ cmd }) => {
    if (cmd === 'puback') left -= 1;
    if (left === 0) acknowledged();
  });
  // Its secret may have been replaced by what was sent before.
  if (link.returnCode !== 0) return link.socket.destroy() && undefined;
  for (const [n, one] of all.entries()) {
    const payload = bytesOf(one, known).subarray(0, maxBytes);
    link.send(publishBytes(known[one.channel] ?? '', payload, { qos: 1, messageId: n + 1 }));
  }
  const over = new AbortController();
  const fault = await Promise.race([
    done,
    link.closed.then(() => 'the connection has ended'),
    sleep(patience, `${left} messages were not acknowledged`, { signal: over.signal }).catch(() => ''),
  ]);
  over.abort();
  link.socket.destroy();
  if (fault) throw new Error(fault);
}

function bytesOf({ channel, value, raw, spoils: changes }: Said, known: Known): Buffer {
  if (raw !== undefined) return Buffer.from(raw, 'hex');
  if (channel === 'control') return spoil(encoded(value), changes);
  return spoil(Buffer.from((JSON.stringify(value) ?? '').replace('«command»', known.command ?? '')), changes);
}

/** What the encoder does not take becomes nothing. */
function encoded(value: unknown): Buffer {
  try {
    return Buffer.from(encoder.encode(value));
  } catch {
    return Buffer.alloc(0);
  }
}
