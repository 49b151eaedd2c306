import t from 'tap';
import { startService } from '../support/service.js';

t.test('the files of the console are sent compressed to those who accept it, and as they are to others', async (t) => {
  const service = await startService(t);
  const page = await service.http('GET', '/console/', { token: null });
  const [, main = ''] = /src="(\/console\/files\/main-[^"]+)"/.exec(page.text) ?? [];
  const read = (encoding: string) =>
    service.http('GET', main, { token: null, headers: { 'accept-encoding': encoding } });
  const plain = await read('identity');
  t.equal(plain.headers.get('content-encoding'), null);
  const lengths: Record<string, number> = {};
  for (const [asked, sent] of [
    ['gzip, deflate, br', 'br'],
    ['gzip', 'gzip'],
  ] as const) {
    const { status, headers, text } = await read(asked);
    t.match([status, headers.get('content-encoding'), text === plain.text], [200, sent, true]);
    t.match(headers.get('content-type'), /javascript/);
    lengths[sent] = Number(headers.get('content-length'));
  }
  for (const { headers } of [plain, await read('br')]) {
    t.match(headers.get('vary'), /accept-encoding/i);
    t.match(headers.get('cache-control'), /immutable/);
  }
  t.ok((lengths.br ?? 0) < (lengths.gzip ?? 0) && (lengths.gzip ?? 0) < plain.text.length / 2, JSON.stringify(lengths));
  t.equal((await service.http('GET', `${main}.br`, { token: null })).status, 404, 'there is no other address for it');
});
