/**
 * Pictures that people upload, as SVG that only draws. The text is read by a strict parser and written anew from lists of
 * what is allowed, so nothing gets through that we have not written: no script, no address of anything else.
 */
import { SaxesParser, type SaxesTagNS } from 'saxes';

const svgNamespace = 'http://www.w3.org/2000/svg';
const xlinkNamespace = 'http://www.w3.org/1999/xlink';

/** What is not here is left out with everything in it: `use` and `pattern` can repeat a picture without end. */
const elements = new Set(
  `svg g defs title desc path rect circle ellipse line polyline polygon text tspan
   linearGradient radialGradient stop clipPath mask style`.split(/\s+/),
);

const attributes = new Set(
  `id class viewBox preserveAspectRatio width height x y x1 y1 x2 y2 cx cy r rx ry fx fy fr d points pathLength transform
   fill fill-opacity fill-rule stroke stroke-width stroke-opacity stroke-linecap stroke-linejoin stroke-miterlimit
   stroke-dasharray stroke-dashoffset opacity color display visibility paint-order vector-effect shape-rendering
   clip-path clip-rule clipPathUnits mask mask-type maskUnits maskContentUnits style
   offset stop-color stop-opacity gradientUnits gradientTransform spreadMethod
   dx dy rotate textLength lengthAdjust text-anchor dominant-baseline font-family font-size font-style font-weight
   letter-spacing word-spacing`.split(/\s+/),
);

/** Of a value that could name something elsewhere, only a part of the same picture is left. */
const elsewhere = /url\((?!\s*["']?#[\w.-]+["']?\s*\))|[\\@]|image-set|expression|(?:java|vb)script:/i;
const ownPart = /^#[\w.-]+$/;

/** @throws Error that says why the text is not a picture. */
export function cleanSvg(text: string): string {
  const parser = new SaxesParser({ xmlns: true });
  const written: string[] = [];
  /** Elements that are open within one that is left out, itself included. */
  let skipped = 0;
  let depth = 0;
  /** The text of an open style element: an address in parts, around a comment or CDATA, is one as well. */
  let style: string[] | undefined;
  parser.on('error', (error) => {
    throw new Error(`is not well-formed SVG (${error.message})`);
  });
  parser.on('opentag', (tag) => {
    if (depth === 0 && (!isAllowed(tag) || tag.local !== 'svg')) throw new Error('is not SVG');
    depth += 1;
    // An element within a style would cut its text too.
    if (skipped > 0 || style || !isAllowed(tag)) {
      skipped += 1;
      return;
    }
    written.push(`<${tag.local}${depth === 1 ? ` xmlns="${svgNamespace}"` : ''}${attributesOf(tag)}>`);
    if (tag.local === 'style') style = [];
  });
  parser.on('closetag', ({ local }) => {
    depth -= 1;
    if (skipped > 0) {
      skipped -= 1;
      return;
    }
    const rules = style?.join('') ?? '';
    style = undefined;
    written.push(elsewhere.test(rules) ? '' : escaped(rules), `</${local}>`);
  });
  const write = (characters: string) => {
    if (skipped > 0 || depth === 0) return;
    if (style) style.push(characters);
    else written.push(escaped(characters));
  };
  parser.on('text', write);
  parser.on('cdata', write);
  parser.write(text).close();
  return written.join('');
}

function isAllowed({ uri, local }: SaxesTagNS): boolean {
  return uri === svgNamespace && elements.has(local);
}

function attributesOf({ attributes: given }: SaxesTagNS): string {
  return Object.values(given)
    .map(({ uri, local, value }) => {
      if (local === 'href' && (uri === '' || uri === xlinkNamespace))
        return ownPart.test(value) ? ` href="${escaped(value)}"` : '';
      return uri === '' && attributes.has(local) && !elsewhere.test(value) ? ` ${local}="${escaped(value)}"` : '';
    })
    .join('');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
