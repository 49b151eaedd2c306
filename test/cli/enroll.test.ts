/** `slipway enroll`: a device for every proof, over HTTP and MQTT. */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { newGroup } from '../enrollment/devices.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { type Made, present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
let claimed: Made<'enrollmentGroup'>;
let derived: Made<'enrollmentGroup'>;
t.before(async () => {
  service = await sharedService(t);
  claimed = await newGroup(service, { serialNumberPattern: 'CLI-*' });
  derived = await newGroup(service, { proof: 'derivedKey' });
});

const enroll = (args: string[], env: Record<string, string> = {}) =>
  runCommand(['enroll', ...args], { SLIPWAY_URL: service.server.url, SLIPWAY_TOPIC_ROOT: service.topicRoot, ...env });
const broker = () => `mqtt://127.0.0.1:${service.server.mqttPort}`;

t.test('a device gets its credential with a claim secret or a derived key, over HTTP and MQTT', async (t) => {
  const claim = ['--group', claimed.id, '--secret', present(claimed.claimSecret)];
  const key = ['--group', derived.id, '--group-key', present(derived.groupKey)];
  for (const [args, serial] of [
    [claim, 'CLI-1'],
    [[...claim, '--mqtt', broker()], 'CLI-2'],
    [key, 'AC:DE:48'],
    [[...key, '--mqtt', broker(), '--cbor', '--field', 'location=Hall 3'], 'CLI-4'],
    [claim, ' CLI-7\u00a0'],
    [key, 'CLI-8 '],
    [[...key, '--mqtt', broker()], '\ufeffCLI-9 '],
  ] as const) {
    const { code, stdout, stderr } = await enroll([...args, '--serial', serial]);
    t.equal(code, 0, stderr);
    const { device, credential } = JSON.parse(stdout);
    t.equal(device.serialNumber, serial.trim());
    const client = await service.connect({ deviceId: device.id, secret: credential.secret });
    await client.endAsync();
  }
});

t.test('the secret comes from the environment, and the answer goes to files that nobody else reads', async (t) => {
  const out = join(temporaryDirectory(t), 'device');
  const args = ['--group', claimed.id, '--serial', 'CLI-5', '--out', out];
  const { code, stdout } = await enroll(args, { SLIPWAY_ENROLL_SECRET: present(claimed.claimSecret) });
  t.same([code, stdout], [0, `${out}\n`]);
  const answer = JSON.parse(readFileSync(join(out, 'device.json'), 'utf8'));
  t.equal(answer.device.serialNumber, 'CLI-5');
  t.equal(statSync(join(out, 'device.json')).mode & 0o077, 0);
  const again = ['--group', claimed.id, '--serial', 'CLI-5', '--secret', present(claimed.claimSecret)];
  const client = await service.connect({ deviceId: answer.device.id, secret: answer.credential.secret });
  await client.endAsync();
  t.match(await enroll(again), { code: 1, stderr: /connected already/ });
  t.match(await enroll([...again, '--previous-secret', answer.credential.secret]), { code: 0 });
});

t.test('how it ends says what was wrong', async (t) => {
  const claim = ['--group', claimed.id, '--secret', present(claimed.claimSecret)];
  const mqtt = ['--mqtt', broker()];
  const wrong = ['--group', claimed.id, '--secret', 'wrong', '--serial', 'CLI-6'];
  for (const [args, code, sentence] of [
    [['--group', claimed.id, '--serial', 'CLI-6'], 2, /One of --secret, --group-key and --cert is needed/],
    [['--group', claimed.id, '--group-key', 'x'], 2, /--group-key needs --serial/],
    [[...claim, '--serial', 'CLI-6', '--cbor'], 2, /--cbor is for --mqtt/],
    [[...claim, '--serial', 'CLI-6', '--cert', 'x'], 2, /--cert and --key go together/],
    [[...claim, '--serial', 'CLI-6', '--field', 'x'], 2, /--field x must be NAME=VALUE/],
    [[...claim, '--serial', 'CLI-6', '--csr', '/nothing'], 2, /cannot be read/],
    [[...claim, '--serial', 'other'], 1, /refused: 403 .*pattern/],
    [[...claim, '--serial', 'other', ...mqtt], 1, /refused: .*pattern/],
    [claim, 1, /serialNumber is required/],
    [wrong, 4, /The proof is wrong/],
    [[...wrong, ...mqtt], 4, /The proof is wrong/],
    [[...wrong, '--url', 'http://127.0.0.1:9'], 3, /cannot be reached/],
    [[...wrong, '--mqtt', 'mqtt://127.0.0.1:9'], 3, /cannot be reached/],
  ] as const) {
    const ended = await enroll([...args]);
    t.equal(ended.code, code, args.join(' '));
    t.match(ended.stderr, sentence);
    t.equal(ended.stdout, '');
  }
});

t.end();
