/** Whose word about an address is taken, and the one form that an address has. */
import { forwardedAddress, peerAddress, plainAddress, trustOf } from '../../src/core/network/addresses.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const trusts = trustOf(['127.0.0.1', '10.0.0.0/8', 'fd00::/8']);
const behind = (header: string | string[] | undefined, peer = '127.0.0.1') => forwardedAddress(peer, header, trusts);

t.test('an address has one form', async (t) => {
  for (const [text, plain] of [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:c000:201', '192.0.2.1'],
    ['0:0:0:0:0:ffff:c000:0201', '192.0.2.1'],
    ['2001:DB8:0:0::1', '2001:db8::1'],
    ['::1', '::1'],
  ] as const)
    t.equal(plainAddress(text), plain, text);
});

t.test('an invalid address ends the search at the last valid one', async (t) => {
  for (const text of [
    '0x7f.1',
    '1',
    '010.1.1.1',
    '1.2.3',
    'fe80::1%x',
    '::1%',
    'nonsense',
    '',
    '[192.0.2.1]:5',
    '[::1',
    '::1]',
    '[fe80::1%x]:5',
    '192.0.2.1:123456',
    '192.0.2.1:',
    'example.com:80',
  ]) {
    t.equal(plainAddress(text), undefined, `plain: ${text}`);
    t.equal(behind(`192.0.2.9, ${text}`), '127.0.0.1', `at once: ${text}`);
    t.equal(behind(`192.0.2.9, ${text}, 10.0.0.3`), '10.0.0.3', `behind another: ${text}`);
  }
});

t.test('of an entry with a port the address is taken', async (t) => {
  for (const [entry, address] of [
    ['9.9.9.9:55', '9.9.9.9'],
    ['[2001:DB8::1]:55', '2001:db8::1'],
    ['[2001:db8::1]', '2001:db8::1'],
    ['[::ffff:9.9.9.9]:55', '9.9.9.9'],
    ['198.51.100.1, 9.9.9.9:55, 10.0.0.2:80, [fd00::5]:80', '9.9.9.9'],
    ['198.51.100.1, 9.9.9.9, ::ffff:10.0.0.2', '9.9.9.9'],
  ] as const)
    t.equal(behind(entry), address, entry);
  t.equal(behind(['198.51.100.1', '9.9.9.9']), '9.9.9.9', 'the header twice');
});

t.test('nobody else is asked', async (t) => {
  t.equal(behind('9.9.9.9', '192.0.2.1'), '192.0.2.1');
  t.equal(behind(undefined), '127.0.0.1');
  t.equal(forwardedAddress(undefined, '9.9.9.9', trusts), undefined);
  t.equal(peerAddress({ remoteAddress: 'fe80::1%eth0' }), 'fe80::1');
  t.equal(peerAddress({ remoteAddress: '::ffff:127.0.0.1' }), '127.0.0.1');
  t.equal(peerAddress({ remoteAddress: undefined }), undefined);
});

t.end();
