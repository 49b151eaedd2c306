import { checkCharacter } from '../../src/registry/credentials/association-codes.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { storedRows } from '../support/stored.ts';

const t = await part(import.meta);

let now = Date.parse('2026-05-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

const codeOf = async (deviceId: string): Promise<string> =>
  (await service.ok('POST', '/api/v1/association/create-association-code', { body: { deviceId } })).associationCode;
const start = (associationCode: string, target: object, token?: string) =>
  service.http('POST', '/api/v1/association/start-association-with-code', {
    body: { associationCode, ...target },
    ...(token && { token }),
  });
const read = async (id: string) => (await service.ok('GET', `/api/v1/devices/${id}`)).device;
const unknownCode = () => {
  const characters = Array.from({ length: 11 }, () => '0123456789'.charAt(Math.floor(Math.random() * 10))).join('');
  return characters + checkCharacter(characters);
};

t.test('a customer claims a device with its code, however it is typed', async (t) => {
  const organization = await service.organization();
  const { endUser, token } = await service.endUser(organization.id);
  const { device } = await service.device();
  const code = await codeOf(device.id);
  t.match(code, /^[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$/);
  const typed = ` ${code.toLowerCase().replaceAll('-', ' ').replaceAll('0', 'o').replaceAll('1', 'l')} `;
  t.match(await start(typed, { endUserId: endUser.id }, token), { status: 200, body: { deviceId: device.id } });
  t.match(await read(device.id), { provisioningState: 'associated', organizationId: organization.id });
  t.match(await service.http('GET', `/api/v1/devices/${device.id}`, { token }), { status: 200 });
  await service.credential(device.id);
  t.equal((await read(device.id)).provisioningState, 'associated', 'and stays so when the credential is made again');
  const below = await service.organization({ parentId: organization.id });
  t.match(await start(code, { organizationId: below.id }, token), { status: 200 }, 'the code moves it again');
  t.equal((await read(device.id)).organizationId, below.id);
  const stored = storedRows(service, 'SELECT * FROM "associationCodes"');
  t.notMatch(JSON.stringify(stored), new RegExp(code.replaceAll('-', '-?')), 'stored hashed');
});

t.test('mistyped, unknown, replaced, deleted, held by others', async (t) => {
  const [mine, theirs] = [await service.organization(), await service.organization()];
  const { endUser: stranger } = await service.endUser(theirs.id);
  const { token } = await service.endUser(mine.id);
  const { device } = await service.device({ organizationId: theirs.id });
  const code = await codeOf(device.id);
  const target = { organizationId: mine.id };
  const wrong = code.replace(/.$/, (last) => (last === '7' ? '8' : '7'));
  t.match(await start(wrong, target, token), { status: 400, body: { error: { code: 106 } } });
  for (const bad of ['', '123', 'UUUU-UUUU-UUUU', 'ÄÄÄÄ-ÄÄÄÄ-ÄÄÄÄ'])
    t.match(await start(bad, target, token), { status: 400, body: { error: { code: 106 } } }, bad);
  t.match(await start(code, target, token), { status: 422, body: { error: { code: 106 } } }, 'held out of reach');
  t.match(await start(code, { organizationId: theirs.id }, token), { status: 400, body: { error: { code: 102 } } });
  t.match(await start(code, { endUserId: stranger.id }, token), { status: 400, body: { error: { code: 102 } } });
  t.match(await start(code, {}, token), { status: 400, body: { error: { code: 106 } } });
  const replaced = await codeOf(device.id);
  t.match(await start(code, target), { status: 404, body: { error: { code: 100 } } });
  const { version } = await read(device.id);
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } });
  t.match(await start(replaced, target), { status: 422 });
  t.match(
    await service.http('POST', '/api/v1/association/create-association-code', { body: { deviceId: device.id } }),
    { status: 410 },
  );
  t.match(
    await service.http('POST', '/api/v1/association/create-association-code', { body: { deviceId: device.id }, token }),
    { status: 403 },
  );
  t.match(
    await service.http('POST', '/api/v1/association/create-association-code', { body: { deviceId: 'nothing' } }),
    { status: 404 },
  );
});

t.test('guessing is limited for the guesser alone, and for a time', async (t) => {
  const organization = await service.organization();
  const [guesser, other] = [await service.endUser(organization.id), await service.endUser(organization.id)];
  const target = { organizationId: organization.id };
  const guesses = await Promise.all(Array.from({ length: 12 }, () => start(unknownCode(), target, guesser.token)));
  t.same(guesses.map(({ status }) => status).sort(), [...Array(10).fill(404), 429, 429], 'also when sent at once');
  const limited = await start(unknownCode(), target, guesser.token);
  t.match(limited, { status: 429, body: { error: { code: -199 } } });
  t.equal(limited.headers.get('retry-after'), '900');
  const { device } = await service.device();
  t.equal((await start(await codeOf(device.id), target, other.token)).status, 200);
  now += 15 * 60_000;
  t.equal((await start(unknownCode(), target, guesser.token)).status, 404);
});

t.end();
