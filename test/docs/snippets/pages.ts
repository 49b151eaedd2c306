/** What the pages of the repository tell people to run: the blocks between fences, and the commands within sentences. */
import { globSync, readFileSync } from 'node:fs';

export interface Block {
  page: string;
  line: number;
  /** What stands after the fence. */
  language: string;
  text: string;
}

/** Every page, README first: later ones take up what it has made. */
export const pages = [
  'README.md',
  ...globSync(['*.md', 'docs/**/*.md', 'deploy/**/*.md', 'examples/**/*.md'])
    .filter((page) => page !== 'README.md')
    .sort(),
];

/** The blocks of a page in its order, without their indentation. */
export function blocksOf(page: string): Block[] {
  const text = readFileSync(page, 'utf8');
  return [...text.matchAll(/^( *)```(\w*)\n([\s\S]*?)^\1```$/gm)].map(
    ({ index, 1: indent = '', 2: language = '', 3: body = '' }) => ({
      page,
      line: text.slice(0, index).split('\n').length,
      language,
      text: body.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    }),
  );
}

/** The code within sentences and tables, with its line. */
export function wordsOf(page: string): Array<{ page: string; line: number; text: string }> {
  const text = readFileSync(page, 'utf8').replaceAll(/^ *```[\s\S]*?^ *```$/gm, (block) =>
    block.replaceAll(/[^\n]/g, ''),
  );
  return [...text.matchAll(/`([^`]+)`/g)].map(({ index, 1: code = '' }) => ({
    page,
    line: text.slice(0, index).split('\n').length,
    text: code.replaceAll(/\s*\n\s*/g, ' '),
  }));
}
