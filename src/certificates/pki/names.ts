/** Names of subjects and issuers (RFC 5280, 4.1.2.4): their attributes as text, and whether two are the same. */
import { comparableText } from '../../../db/registry/distinguished-names.ts';
import { type Element, elementsOf, partsOf } from '../der.ts';

/** One attribute: its type, the hex of an object identifier, and its value. */
interface Attribute {
  type: string;
  /** Undefined where it is not a text. */
  text: string | undefined;
  value: Element;
}

/** Tags of strings whose characters are one byte each: Numeric, Printable, Teletex, IA5, Visible. */
const byteStrings: ReadonlySet<number> = new Set([18, 19, 20, 22, 26]);
const utf8String = 12;
const universalString = 28;
const bmpString = 30;
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The attributes of a name, in their order, by the sets in which they are. @throws Error where it is not one. */
export function attributesOf(name: Uint8Array): Attribute[][] {
  return partsOf(name).map((set) =>
    [...elementsOf(set.content)].map((pair) => {
      const [type, value, more] = elementsOf(pair.content);
      if (!type || !value || more) throw new Error('not an attribute');
      return { type: type.content.toString('hex'), text: textOf(value), value };
    }),
  );
}

function textOf({ tag, content: bytes }: Element): string | undefined {
  if (byteStrings.has(tag)) return bytes.toString('latin1');
  if (tag === bmpString && bytes.length % 2 === 0) return Buffer.from(bytes).swap16().toString('utf16le');
  try {
    if (tag === utf8String) return utf8.decode(bytes);
    if (tag !== universalString || bytes.length % 4 !== 0) return undefined;
    const points = Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readUInt32BE(4 * at));
    return String.fromCodePoint(...points);
  } catch {
    return undefined;
  }
}

/** RFC 5280, 7.1: the kind of string, letter case, and blanks at the ends and more than one in a row make no difference. */
export function isSameName(one: Uint8Array, other: Uint8Array): boolean {
  return formOf(one) === formOf(other);
}

function formOf(name: Uint8Array): string {
  const pairOf = ({ type, text, value }: Attribute) =>
    text === undefined ? [type, value.whole.toString('hex')] : [type, '', comparableText(text)];
  return JSON.stringify(attributesOf(name).map((set) => set.map((one) => JSON.stringify(pairOf(one))).sort()));
}
