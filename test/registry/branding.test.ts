/** The name, colour and logo of an account, which anyone may read. */
import { deflateSync } from 'node:zlib';
import { cleanSvg } from '../../src/registry/svg.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const svg = (inside: string, more = '') =>
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"${more}>${inside}</svg>`;
const dataUrl = (text: string | Buffer, type = 'svg+xml') =>
  `data:image/${type};base64,${Buffer.from(text).toString('base64')}`;
const put = (body: object, token = service.admin) => service.http('PUT', '/api/v1/account/branding', { body, token });
const read = async (accountId = service.accountId) =>
  (await service.ok('GET', `/api/v1/account/branding?accountId=${accountId}`, { token: null })).branding;
const decoded = (logo: string | null) => Buffer.from(String(logo).replace(/^.*,/, ''), 'base64').toString();

/** A PNG of so many pixels whose other bytes nobody reads. */
function png(width: number, height: number, filler = 0): Buffer {
  const header = Buffer.alloc(33);
  header.write('\x89PNG\r\n\x1a\n\0\0\0\rIHDR', 'latin1');
  header.writeUInt32BE(width, 16);
  header.writeUInt32BE(height, 20);
  return Buffer.concat([header, deflateSync(Buffer.alloc(16)), Buffer.alloc(filler)]);
}

t.test('an admin chooses, anyone reads, and what a body leaves out stays', async (t) => {
  t.same(await read(), { name: (await service.ok('GET', '/api/v1/profile/me')).accountName, color: null, logo: null });
  const logo = dataUrl(svg('<path d="M0 0h8v8z"/>'));
  t.match(await put({ name: 'Hearth', color: '#0a7D55', logo }), {
    status: 200,
    body: { branding: { name: 'Hearth' } },
  });
  const chosen = await read();
  t.match(chosen, { name: 'Hearth', color: '#0a7D55' });
  t.equal(decoded(chosen.logo), svg('<path d="M0 0h8v8z"></path>'));
  await put({ color: null });
  t.match(await read(), { name: 'Hearth', color: null, logo: chosen.logo });
  t.equal((await put({ logo: chosen.logo })).status, 200, 'what was read can be sent back');
  t.match((await put({ name: null, logo: null })).body, { branding: { logo: null } });
  const { auditRecords } = await service.ok(
    'GET',
    `/api/v1/audit?accountId=${service.accountId}&event=brandingChanged&pageSize=10`,
  );
  t.match(
    auditRecords.results.map(({ details }) => details.changed),
    ['name, logo', 'logo', 'color', 'name, color, logo'],
  );
});

t.test('a logo is a small SVG or PNG, and a colour is one', async (t) => {
  const refused = async (body: object) => {
    const { status, body: answer } = await put(body);
    return [status, JSON.stringify(answer)];
  };
  t.equal((await put({ logo: dataUrl(png(64, 64), 'png') })).status, 200);
  t.equal((await put({ logo: dataUrl(png(64, 64, 65_000), 'png') })).status, 200);
  t.match(await refused({ logo: dataUrl(png(64, 64, 65_536), 'png') }), [413, /The logo has more than 65536 bytes/]);
  t.match(await refused({ logo: dataUrl(svg(`<title>${'x'.repeat(65_536)}</title>`)) }), [413, /65536/]);
  t.match(await refused({ logo: dataUrl(png(30_000, 30_000), 'png') }), [400, /2048/]);
  t.match(await refused({ logo: dataUrl('GIF89a', 'png') }), [400, /is not a PNG/]);
  t.match(await refused({ logo: dataUrl('GIF89a', 'gif') }), [400, /must be a data URL/]);
  t.match(await refused({ logo: 'https://example.com/logo.svg' }), [400, /must be a data URL/]);
  t.match(await refused({ logo: dataUrl('<html xmlns="http://www.w3.org/1999/xhtml"/>') }), [400, /is not SVG/]);
  t.match(await refused({ logo: dataUrl('<svg xmlns="http://www.w3.org/2000/svg"><g></svg>') }), [400, /well-formed/]);
  t.match(await refused({ logo: dataUrl(`<!DOCTYPE svg [<!ENTITY a "b">]>${svg('<title>&a;</title>')}`) }), [
    400,
    /well-formed/,
  ]);
  for (const color of ['red', '#12345', '#1234567', 'url(#a)', '#12345g'])
    t.equal((await put({ color })).status, 400, color);
  t.equal((await put({ name: '' })).status, 400);
  t.equal((await put({ name: 'x'.repeat(101) })).status, 400);
});

t.test('an SVG keeps what draws, and nothing that runs or leads elsewhere', async (t) => {
  const harmless = svg(
    '<defs><linearGradient id="g"><stop offset="0" stop-color="#f00"></stop></linearGradient></defs><style>.a{fill:url(#g)}</style><g class="a" style="fill:url(#g)"><text x="1">Ä &amp; &lt;b&gt;</text></g>',
  );
  t.equal(cleanSvg(harmless), harmless);
  const hostile = [
    '<script>alert(1)</script>',
    '<script xmlns="http://www.w3.org/1999/xhtml">alert(1)</script>',
    '<foreignObject><body xmlns="http://www.w3.org/1999/xhtml" onload="alert(1)"/></foreignObject>',
    '<a href="javascript:alert(1)"><rect/></a>',
    '<image href="https://example.com/x.png"/>',
    '<use href="data:image/svg+xml;base64,AAAA#x"/>',
    '<animate attributeName="href" to="javascript:alert(1)"/>',
    '<set attributeName="onload" to="alert(1)"/>',
    '<iframe src="https://example.com"/>',
    '<h:script xmlns:h="http://www.w3.org/1999/xhtml">alert(1)</h:script>',
  ];
  for (const one of hostile) t.equal(cleanSvg(svg(`${one}<g></g>`)), svg('<g></g>'), one);
  for (const attribute of [
    'onload="alert(1)"',
    'ONCLICK="alert(1)"',
    'xmlns:x="urn:x" x:onload="alert(1)"',
    'style="fill:url(https://example.com/a)"',
    'style="background:u\\72l(x)"',
    'fill="url(&#x22;https://example.com/a&#x22;)"',
    'href="https://example.com"',
    'xlink:href="javascript:alert(1)" xmlns:xlink="http://www.w3.org/1999/xlink"',
  ])
    t.equal(cleanSvg(svg(`<g ${attribute}></g>`)), svg('<g></g>'), attribute);
  const inParts = [
    '.a{fill:u<![CDATA[rl(//example.com)]]>}',
    '.a{fill:ur<!-- -->l(//example.com)}',
    '<g></g>.a{fill:url(//example.com)}',
    '.a{fill:u<g></g>rl(//example.com)}',
  ];
  for (const style of ['@import "https://example.com"', '.a{fill:url(//example.com)}', ...inParts])
    t.equal(cleanSvg(svg(`<style>${style}</style>`)), svg('<style></style>'), style);
  t.equal(
    cleanSvg(svg('<style><![CDATA[</style><script>]]></style>')),
    svg('<style>&lt;/style&gt;&lt;script&gt;</style>'),
  );
  t.equal(cleanSvg(`<?xml-stylesheet href="a.css"?><!-- <script> -->${svg('<g></g>')}`), svg('<g></g>'));
});

t.test('of an account that does not exist, and by who is no admin', async (t) => {
  t.match(await service.http('GET', '/api/v1/account/branding?accountId=x', { token: null }), { status: 404 });
  t.equal((await service.http('GET', '/api/v1/account/branding', { token: null })).status, 400);
  const { token } = await service.endUser((await service.organization()).id);
  t.equal((await put({ name: 'Mine' }, token)).status, 403);
  t.equal((await service.http('PUT', '/api/v1/account/claiming', { body: { signUp: false }, token })).status, 403);
  t.equal((await service.http('GET', '/api/v1/account/claiming', { token })).status, 403);
  const other = await service.account();
  await service.ok('PUT', '/api/v1/account/branding', { body: { name: 'Theirs' }, token: other.admin });
  t.not((await read()).name, 'Theirs');
  t.equal((await read(other.accountId)).name, 'Theirs');
});

t.end();
