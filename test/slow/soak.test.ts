/** The soak in short: that it notices what grows, and that its load works; `npm run test:soak` takes its time. */
import t from 'tap';
import { judge } from '../soak/flat.ts';
import { soak } from '../soak/soak.ts';
import { temporaryDirectory } from '../support/directory.ts';

const points = (value: (at: number) => number) =>
  Array.from({ length: 120 }, (_, n) => ({ at: n * 5, value: value(n * 5) }));
/** Up and down by a third, as memory between two collections. */
const saw = (at: number) => 100 + ((at * 7) % 33);

t.test('what goes up and down, or jumps once, is flat; what rises slowly beneath that is not', async (t) => {
  t.ok(judge(points(saw), 1).isFlat);
  t.ok(
    judge(
      points((at) => (at === 300 ? 1000 : saw(at))),
      1,
    ).isFlat,
  );
  t.ok(
    judge(
      points((at) => 200 - at / 10),
      1,
    ).isFlat,
  );
  t.notOk(
    judge(
      points((at) => saw(at) + at / 20),
      1,
    ).isFlat,
  );
  t.ok(
    judge(
      points((at) => saw(at) + at / 20),
      40,
    ).isFlat,
    'except what it may rise by in any case',
  );
});

t.test('the load does all that it should, and nothing of it fails', async (t) => {
  const lines: string[] = [];
  const directory = temporaryDirectory(t);
  const { done, failures, verdicts } = await soak({
    directory,
    seconds: 1,
    every: 0.25,
    say: (line) => lines.push(line),
  });
  t.same(failures, [], lines.join('\n'));
  const kinds = ['devices', 'heard', 'logins', 'messages', 'reads', 'rows of jobs', 'streams'];
  t.same([...done.keys()].sort(), kinds);
  t.ok(
    [...done.values()].every((count) => count > 0),
    JSON.stringify([...done]),
  );
  t.match(
    verdicts.find(({ name }) => name === 'descriptors'),
    { isFlat: true },
  );
});
