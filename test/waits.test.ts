/** Waits of tests end, and say what they saw. */
import { part } from './support/part.ts';

const t = await part(import.meta);

process.env.TEST_PATIENCE_SECONDS = '0.2';
const hasty = './support/until.ts?hasty';
const { soon, until } = (await import(hasty)) as typeof import('./support/until.ts');
delete process.env.TEST_PATIENCE_SECONDS;

// A wait keeps no process alive; a service does.
const alive = setInterval(() => {}, 1000);
t.teardown(() => clearInterval(alive));

t.test('a wait without progress ends, and says what it waited for, what it saw, and who asked', async (t) => {
  const isThere = () => false;
  const failure = await until(isThere).catch((error) => error);
  t.match(failure.message, /^waited 0\.2 seconds for \(\) => false; it saw: false$/);
  t.match(failure.stack.split('\n')[1], 'waits.test.ts');
  let count = 0;
  const look = async () => {
    count += 1;
    return { count: Math.min(count, 9) };
  };
  await t.rejects(
    until(look, (seen) => seen.count > 9),
    /; it saw: \{ count: 9 \}$/,
  );
  await t.rejects(
    until(() => new Promise<boolean>(() => {})),
    /it saw: nothing/,
    'a look that does not end',
  );
});

t.test('a wait goes on while something changes, and gives what it saw', async (t) => {
  const from = performance.now();
  const look = () => Math.floor((performance.now() - from) / 100);
  t.equal(await until(look, (seen) => seen === 6), 6);
});

t.test('an event that does not come ends its wait, and one that nobody awaits fails nothing', async (t) => {
  const never = new Promise<void>(() => {});
  const heard = ['a', 'b'];
  void soon('what nobody awaits', never);
  await t.rejects(
    soon('a message', never, () => heard),
    /^waited 0\.2 seconds for a message; it saw: \[ 'a', 'b' \]$/,
  );
  t.equal(await soon('a value', Promise.resolve(1)), 1);
});

t.end();
