/** Standard output that cannot be written: the service goes on, and says what of its log was lost. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import { freePort } from '../support/free-port.ts';
import { part } from '../support/part.ts';
import { inherited, mainFile, plainNode } from '../support/process.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

/** A service that logs all that it can: its starts, whether it answers, what makes it log, and its end. */
async function talkative(t: Test) {
  const directory = temporaryDirectory(t);
  const [port, mqttPort] = [await freePort(), await freePort()];
  const env = { SLIPWAY_HTTP_PORT: `${port}`, SLIPWAY_MQTT_PORT: `${mqttPort}`, SLIPWAY_LOG_LEVEL: 'trace' };
  const start = (stdout: number | 'pipe') => {
    const child = spawn('env', [...plainNode, mainFile], {
      cwd: directory,
      env: { ...inherited, ...env, SLIPWAY_DATA_DIR: directory },
      stdio: ['ignore', stdout, 'ignore'],
    });
    const ended = once(child, 'exit');
    t.teardown(async () => {
      child.kill('SIGKILL');
      await ended;
    });
    return child;
  };
  const answer = () =>
    fetch(`http://127.0.0.1:${port}/health/ready`).then(
      ({ status }) => status,
      () => 0,
    );
  /** The code of the CONNACK that a stranger gets. */
  const connack = () =>
    mqtt.connectAsync(`mqtt://127.0.0.1:${mqttPort}`, { username: 'x', password: 'x', reconnectPeriod: 0 }, false).then(
      () => 0,
      ({ code }) => code as number,
    );
  /** Ends with 0, which it does not where closing took too long, and in the five seconds that are promised. */
  const endsInTime = async (child: ChildProcess) => {
    const ended = once(child, 'exit');
    const begun = performance.now();
    child.kill('SIGTERM');
    t.same(await ended, [0, null]);
    const took = performance.now() - begun;
    t.ok(took < 5000, `took ${took.toFixed(0)} ms`);
  };
  /** More lines than a pipe and its bound take. */
  const fill = async (hundreds: number) => {
    for (let n = 0; n < hundreds; n += 1)
      await Promise.all(
        Array.from({ length: 100 }, () => fetch(`http://127.0.0.1:${port}/nothing`).then((one) => one.text())),
      );
  };
  return { start, answer, connack, endsInTime, fill };
}

t.test(
  'a log on a full disk, and one that nobody reads, hold nothing; what is lost is said when it goes on',
  async (t) => {
    const { start, answer, connack, endsInTime, fill } = await talkative(t);
    const full = openSync('/dev/full', 'w');
    t.teardown(() => closeSync(full));
    const onFullDisk = start(full);
    await until(async () => (await answer()) === 200);
    await fill(2);
    t.equal(await answer(), 200);
    t.equal(await connack(), 4);
    await endsInTime(onFullDisk);

    const unread = start('pipe');
    unread.stdout?.pause();
    await until(async () => (await answer()) === 200);
    await fill(35);
    t.equal(await answer(), 200);
    t.equal(await connack(), 4);
    let output = '';
    unread.stdout?.on('data', (chunk) => {
      output += chunk;
    });
    unread.stdout?.resume();
    await until(async () => {
      await answer();
      return /lines of the log are lost.*\n/.test(output);
    });
    const [loss = ''] = output.split('\n').filter((line) => line.includes('lines of the log are lost'));
    t.match(JSON.parse(loss), { level: 40, lost: Number });
    unread.stdout?.removeAllListeners('data').pause();
    await fill(5);
    await endsInTime(unread);
  },
);

const disk = temporaryDirectory(t);
const isMounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', disk]).status === 0;
t.teardown(() => isMounted && spawnSync('umount', [disk]));

t.test(
  'a log in a file goes on when its disk has room again, and says what is lost',
  isMounted ? {} : { skip: 'a small disk cannot be mounted here' },
  async (t) => {
    const { start, answer, connack, fill } = await talkative(t);
    const [file, ballast] = [join(disk, 'log'), join(disk, 'ballast')];
    const log = openSync(file, 'a');
    t.teardown(() => closeSync(log));
    start(log);
    await until(async () => (await answer()) === 200);
    t.throws(() => writeFileSync(ballast, Buffer.alloc(64 * 1024)), /ENOSPC/);
    await fill(2);
    t.equal(await answer(), 200);
    t.equal(await connack(), 4);
    const loss = () => readFileSync(file, 'utf8').match(/^.*lines of the log are lost.*\n/m)?.[0];
    t.equal(loss(), undefined);
    rmSync(ballast);
    await until(async () => {
      await answer();
      return loss();
    });
    t.match(JSON.parse(loss() ?? ''), { level: 40, lost: Number });
  },
);

t.end();
