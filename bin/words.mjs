#!/usr/bin/env node
/**
 * Lists what the glossary (docs/words.json) forbids in documents, comments, texts and names, as file:line with what to
 * use instead. Exits with 1 if it finds anything. `node bin/words.mjs [FILE...]` reads only these files.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import ts from 'typescript';

const root = resolve(import.meta.dirname, '..');
const { rules, exceptions } = JSON.parse(readFileSync(join(root, 'docs/words.json'), 'utf8'));
const isSource = /\.(ts|tsx|mjs|cjs|js)$/;
const isText = /\.(md|sh|ya?ml|html|css|svelte|service|example)$|(^|\/)(Dockerfile|run)$/;

/** Migrations that have landed never change, and the glossary quotes the words that it forbids. */
const unread = /^(db\/migrations\/|docs\/words\.json$|package-lock\.json$|dist\/)/;

const compiled = rules.map(({ find, in: place, use, case: isCase }) => ({
  pattern: new RegExp(find, isCase ? 'g' : 'gi'),
  place,
  use,
}));

/** Returns the finds of one file: `{ line, found, use }`. `path` decides how the text is read. */
export function findWords(path, text) {
  const parts = isSource.test(path) ? sourceParts(path, text) : [{ kind: 'text', at: 0, text }];
  const lines = text.split('\n');
  const finds = [];
  for (const part of parts)
    for (const { pattern, place, use } of compiled) {
      if (!applies(place, part.kind)) continue;
      for (const match of part.text.matchAll(pattern)) {
        const line = lineAt(text, part.at + match.index);
        if (!isExcepted(path, lines[line - 1])) finds.push({ line, found: match[0], use });
      }
    }
  return finds.sort((a, b) => a.line - b.line);
}

function applies(place, kind) {
  if (place === 'text') return kind !== 'name';
  if (place === 'comments') return kind === 'comment' || kind === 'title';
  return place === 'names' && kind === 'name';
}

function isExcepted(path, line) {
  return exceptions.some(({ file, text }) => path === file && line.includes(text));
}

function lineAt(text, index) {
  let line = 1;
  for (let at = text.indexOf('\n'); at !== -1 && at < index; at = text.indexOf('\n', at + 1)) line += 1;
  return line;
}

/** The comments, the texts and the declared names of a source file. */
function sourceParts(path, text) {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const parts = [];
  let rest = text;
  const visit = (node) => {
    if (isLiteral(node)) {
      const at = node.getStart(file);
      const literal = text.slice(at, node.end);
      if (node.kind !== ts.SyntaxKind.RegularExpressionLiteral) parts.push({ kind: 'text', at, text: literal });
      rest = rest.slice(0, at) + literal.replace(/[^\n]/g, ' ') + rest.slice(node.end);
    } else if (isDeclaredName(node)) parts.push({ kind: 'name', at: node.getStart(file), text: node.text });
    ts.forEachChild(node, visit);
  };
  visit(file);
  for (const match of rest.matchAll(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g))
    parts.push({ kind: 'comment', at: match.index, text: match[0] });
  return parts;
}

function isLiteral(node) {
  return (
    ts.isStringLiteralLike(node) ||
    ts.isTemplateHead(node) ||
    ts.isTemplateMiddleOrTemplateTail(node) ||
    ts.isJsxText(node) ||
    node.kind === ts.SyntaxKind.RegularExpressionLiteral
  );
}

function isDeclaredName(node) {
  return (
    (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) &&
    node.parent?.name === node &&
    !ts.isPropertyAccessExpression(node.parent)
  );
}

if (resolve(process.argv[1] ?? '') === import.meta.filename) {
  const given = process.argv.slice(2);
  const listed = execFileSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' }).split('\n');
  const files = (given.length > 0 ? given : listed).filter(
    (path) => (isSource.test(path) || isText.test(path)) && !unread.test(path),
  );
  let count = 0;
  for (const path of files)
    for (const { line, found, use } of findWords(path, readFileSync(resolve(root, path), 'utf8'))) {
      count += 1;
      console.log(`${path}:${line}: "${found}": ${use}`);
    }
  if (count > 0) console.error(`${count} words that the glossary (docs/words.json) forbids.`);
  process.exitCode = count > 0 ? 1 : 0;
}
