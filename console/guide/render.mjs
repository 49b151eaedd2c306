/** Renders docs/*.md for /guide: a page of each, their list, and their headings, which the search of the console finds. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { Marked } from 'marked';

const escaped = (text) => text.replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);

/** The anchor of a heading, as GitHub makes it. */
const anchorOf = (heading) =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replace(/ /g, '-');

/** What a text says without its marks. */
const plain = (text) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replace(/[`*]/g, '');

/**
 * Where a link of a page leads within the guide, or undefined if that is no page of it. `names` are its pages: paths in docs without
 * their ending.
 */
function addressOf(names, page, href) {
  const [path, anchor] = href.split('#');
  const name = path === '' ? page : posix.join(posix.dirname(page), path).replace(/\.md$/, '');
  if (!names.includes(name)) return undefined;
  return `/guide/${name}${anchor === undefined ? '' : `#${anchor}`}`;
}

/** The renderer of one page; it notes the headings that it comes to. */
function rendererOf(names, page, headings) {
  return {
    heading({ tokens, depth, text }) {
      const heading = plain(text);
      const first = anchorOf(heading);
      let id = first;
      for (let times = 1; headings.some((one) => one.id === id); times += 1) id = `${first}-${times}`;
      headings.push({ id, heading });
      return `<h${depth} id="${id}">${this.parser.parseInline(tokens)}</h${depth}>\n`;
    },
    link({ href, tokens }) {
      const text = this.parser.parseInline(tokens);
      if (/^https?:/.test(href)) return `<a href="${escaped(href)}" rel="noreferrer">${text}</a>`;
      const to = addressOf(names, page, href);
      if (to !== undefined) return `<a href="${escaped(to)}">${text}</a>`;
      // A file of the sources, which the service does not have: its path says where it is.
      const path = escaped(posix.join('docs', posix.dirname(page), href));
      return text.includes(path) ? text : `${text} (<code>${path}</code>)`;
    },
    html: ({ text }) => escaped(text),
    code: ({ text }) => `<pre tabindex="0">${escaped(text)}</pre>\n`,
    table({ header, rows }) {
      const row = (cells, tag) =>
        `<tr>${cells.map(({ tokens }) => `<${tag}>${this.parser.parseInline(tokens)}</${tag}>`).join('')}</tr>`;
      const body = rows.map((cells) => row(cells, 'td')).join('\n');
      return `<table><thead>${row(header, 'th')}</thead><tbody>${body}</tbody></table>\n`;
    },
  };
}

/**
 * The files of the guide by name. `root` is the directory of the sources, `frame` the page around each text: it has the places
 * {{title}}, {{pages}} and {{text}}.
 */
export function renderGuide(root, frame) {
  const names = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => name.replaceAll('\\', '/').replace(/\.md$/, ''));
  const pages = names.map((name) => {
    const headings = [];
    const text = new Marked({ renderer: rendererOf(names, name, headings) }).parse(
      readFileSync(join(root, 'docs', `${name}.md`), 'utf8'),
    );
    return { name, title: headings[0].heading, headings, text };
  });
  pages.sort((a, b) => a.title.localeCompare(b.title, 'en'));
  const isDecision = ({ name }) => name.startsWith('decisions/') && !name.endsWith('/README');
  const listed = pages.filter((page) => !isDecision(page));
  const list = (current) =>
    listed
      .map(({ name, title }) => [`/guide/${name}`, escaped(title), name === current ? ' aria-current="page"' : ''])
      .map(([address, title, mark]) => `<a href="${address}"${mark}>${title}</a>`)
      .join('\n');
  const framed = (name, title, text) =>
    ['title', 'pages', 'text'].reduce(
      (page, place) => page.replace(`{{${place}}}`, () => ({ title: escaped(title), pages: list(name), text })[place]),
      frame,
    );
  return {
    ...Object.fromEntries(pages.map(({ name, title, text }) => [`${name}.html`, framed(name, title, text)])),
    'index.html': framed('', 'Guide', indexOf(root, names, listed)),
    'headings.json': JSON.stringify(
      pages.flatMap(({ name, title, headings }) =>
        headings.map(({ id, heading }, at) => ({ path: at === 0 ? name : `${name}#${id}`, title, heading })),
      ),
    ),
  };
}

/** The list of the pages: who starts where, from the README, and what each has. */
function indexOf(root, names, pages) {
  const [, start = ''] =
    /^## Where to go next\n([\s\S]*?)^## /m.exec(readFileSync(join(root, 'README.md'), 'utf8')) ?? [];
  const table = new Marked({ renderer: rendererOf(names, '', []) }).parse(
    start.replace(/\]\((docs\/)?/g, (_, isPage) => (isPage ? '](' : '](../')),
  );
  const items = pages.map(({ name, title, headings }) => {
    const parts = headings.slice(1).map(({ heading }) => escaped(heading));
    return `<li><a href="/guide/${name}">${escaped(title)}</a> <span class="soft">${parts.join(' · ')}</span></li>`;
  });
  return `<h1>Guide</h1>\n${table}<h2>All pages</h2>\n<ul class="pages">${items.join('\n')}</ul>`;
}
