/** Programs for boards cannot run here: they compile against declarations of what they use, in test/support/boards. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Test } from 'tap';
import { temporaryDirectory } from '../../support/directory.ts';

const kinds = {
  espIdf: { compiler: ['cc', '-std=gnu17', '-x', 'c'], declared: 'esp-idf.h' },
  firmware: { compiler: ['cc', '-std=gnu17', '-x', 'c'], declared: 'firmware.h' },
  zephyr: { compiler: ['cc', '-std=gnu17', '-x', 'c'], declared: 'zephyr.h' },
  arduino: { compiler: ['c++', '-std=c++17', '-x', 'c++'], declared: 'arduino.h' },
} as const;

/** Checks a program; a header that it names is what is declared for its kind of board, unless the compiler has it. */
export function checkBoard(t: Test, kind: keyof typeof kinds, program: string): void {
  const { compiler, declared } = kinds[kind];
  const [command, ...options] = compiler;
  if (spawnSync(command, ['--version']).status !== 0) {
    t.comment('A compiler is not installed.');
    return;
  }
  const directory = temporaryDirectory(t);
  const headers = program.match(/(?<=^#include ["<])[^">]+/gm) ?? [];
  for (const header of headers.filter((one) => !/^(errno|std|string)/.test(one))) {
    const file = join(directory, header);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, file.endsWith('.inc') ? '0\n' : `#include "${declared}"\n`);
  }
  const warnings = ['-Wall', '-Wextra', '-Werror', '-Wno-unused-parameter'];
  const places = ['-I', directory, '-I', 'test/support/boards'];
  const { status, stderr } = spawnSync(
    command,
    ['-fsyntax-only', '-DYOUR_CA_CERTIFICATE=""', ...warnings, ...places, ...options, '-'],
    {
      input: program,
      encoding: 'utf8',
    },
  );
  t.equal(status, 0, stderr);
}
