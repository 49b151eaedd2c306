/** Standard output that cannot be written: the service goes on, and says what of its log was lost. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { temporaryDirectory } from '../support/directory.ts';
import { freePort } from '../support/free-port.ts';
import { part } from '../support/part.ts';
import { inherited, mainFile, plainNode } from '../support/process.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

t.test(
  'a log on a full disk, and one that nobody reads, hold nothing; what is lost is said when it goes on',
  async (t) => {
    const directory = temporaryDirectory(t);
    const port = await freePort();
    const env = { SLIPWAY_HTTP_PORT: `${port}`, SLIPWAY_LOG_LEVEL: 'trace' };
    const start = (stdout: number | 'pipe') => {
      const child = spawn('env', [...plainNode, mainFile], {
        cwd: directory,
        env: { ...inherited, ...env, SLIPWAY_DATA_DIR: directory, SLIPWAY_MQTT_PORT: '0' },
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
    const full = openSync('/dev/full', 'w');
    t.teardown(() => closeSync(full));
    const onFullDisk = start(full);
    await until(async () => (await answer()) === 200);
    await fill(2);
    t.equal(await answer(), 200);
    await endsInTime(onFullDisk);

    const unread = start('pipe');
    unread.stdout?.pause();
    await until(async () => (await answer()) === 200);
    await fill(35);
    t.equal(await answer(), 200);
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

t.end();
