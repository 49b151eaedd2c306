/** Assertions of tests that are true whatever the service does. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { part } from '../support/part.ts';

const t = await part(import.meta);

/** Assertions of tap that a longer list passes, too. */
const loose = new Set(['match', 'has', 'hasStrict']);

/** The lines with an empty list in the pattern of such an assertion; what a call in the pattern makes is its own. */
function emptyPatternsIn(file: string, text: string): string[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest);
  const found: string[] = [];
  const lookIn = (pattern: ts.Node): void => {
    if (ts.isArrayLiteralExpression(pattern) && pattern.elements.length === 0)
      found.push(`${file}:${source.getLineAndCharacterOfPosition(pattern.getStart(source)).line + 1}`);
    if (!ts.isCallExpression(pattern)) ts.forEachChild(pattern, lookIn);
  };
  const visit = (node: ts.Node): void => {
    const called = ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression) && node.expression;
    if (called && loose.has(called.name.text) && node.arguments[1]) lookIn(node.arguments[1]);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

t.test('no pattern of t.match has an empty list, which every list matches', async (t) => {
  const seen = emptyPatternsIn('seen.ts', 't.match(x, []);\nt.match(x, { a: [{ b: [] }] });\nt.same(x, []);');
  t.strictSame(seen, ['seen.ts:1', 'seen.ts:2']);
  const names = readdirSync('test', { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  t.ok(names.length > 400);
  const files = names.map((name) => join('test', name));
  const texts = files.map((file) => [file, readFileSync(file, 'utf8')] as const);
  const empty = texts.filter(([, text]) => /\[\s*\]/.test(text)).flatMap((one) => emptyPatternsIn(...one));
  t.strictSame(empty, []);
});

t.end();
