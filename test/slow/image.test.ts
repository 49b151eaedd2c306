/** `npm run test:image`, which prints its steps. It needs root, and takes a minute or two. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';

const needed = ['buildah', 'debootstrap'].filter((name) => spawnSync(name, ['--version']).status !== 0);
const skip = needed.length > 0 ? `not installed: ${needed}` : process.getuid?.() !== 0 && 'it needs root';

t.test('the image of the Dockerfile is built, and runs as its user', { skip }, async (t) => {
  const child = spawn('npm', ['run', '--silent', 'test:image'], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk;
    });
  const [code] = await once(child, 'close');
  t.equal(code, 0, output);
});
