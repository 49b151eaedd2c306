/**
 * Serves the console: one page for all its addresses, the page to which labels lead, the home of customers, files whose names change
 * with what they hold, and the guide.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import fastifyStatic from '@fastify/static';
import type { FastifyReply } from 'fastify';
import { PlatformError } from '../../core/errors.ts';
import type { App } from '../app.ts';
import { type Constant, makeConstant, sendConstant } from './constants.ts';

/** Nothing inline, nothing from another host. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');

/** The build puts the console there. */
const root = fileURLToPath(new URL('dist/console/', import.meta.resolve('#package')));
const guide = fileURLToPath(new URL('dist/guide/', import.meta.resolve('#package')));

function sendPage(reply: FastifyReply, page: Constant): void {
  reply.header('content-security-policy', policy);
  sendConstant(reply, 'text/html; charset=utf-8', page);
}

/** `/console` and everything below it, `/`, which leads there, `/claim`, and `/guide/`. */
export async function consoleRoutes(app: App): Promise<void> {
  const isBuilt = existsSync(`${root}index.html`);
  app.get('/', { schema: { hide: true } }, (_, reply) => reply.redirect(isBuilt ? '/console/' : '/docs/'));
  if (!isBuilt) return;
  await app.register(fastifyStatic, {
    root,
    prefix: '/console/files/',
    index: false,
    decorateReply: false,
    schemaHide: true,
    immutable: true,
    maxAge: '365d',
    preCompressed: true,
    globIgnore: ['*.html', '*.br', '*.gz'],
    wildcard: false,
  });
  // A page that was opened before an upgrade asks for files of its version.
  app.get('/console/files/*', { schema: { hide: true } }, () => {
    throw new PlatformError('notFound', { message: 'The console has no such file.' });
  });
  for (const [name, paths] of [
    ['index.html', ['/console', '/console/*']],
    ['claim.html', ['/claim']],
    ['my.html', ['/console/my', '/console/my/*']],
  ] as const) {
    // A build may be older than the sources.
    if (!existsSync(`${root}${name}`)) continue;
    const page = makeConstant(readFileSync(`${root}${name}`, 'utf8').replaceAll('{{prefix}}', app.headerPrefix));
    for (const path of paths) app.get(path, { schema: { hide: true } }, (_, reply) => sendPage(reply, page));
  }
  guideRoutes(app);
}

/** The pages of docs/, as the build has rendered them, and their headings. */
function guideRoutes(app: App): void {
  // A build may be older than the sources.
  if (!existsSync(guide)) return;
  const files = readdirSync(guide, { recursive: true, encoding: 'utf8' }).filter((name) => /\.(html|json)$/.test(name));
  const constants = new Map(
    files.map((name) => [name.replaceAll('\\', '/'), makeConstant(readFileSync(`${guide}${name}`, 'utf8'))] as const),
  );
  const send = ({ params }: { params: unknown }, reply: FastifyReply) => {
    const { '*': name = '' } = params as { '*'?: string };
    const headings = name === 'headings.json' && constants.get(name);
    if (headings) return sendConstant(reply, 'application/json; charset=utf-8', headings);
    const page = constants.get(`${name || 'index'}.html`);
    if (page) return sendPage(reply, page);
    throw new PlatformError('notFound', { message: 'The guide has no such page. /guide/ lists all.' });
  };
  for (const path of ['/guide', '/guide/*']) app.get(path, { schema: { hide: true } }, send);
}
