/** What a person has logged in with, so that they recognize their own sessions. */

const longest = 60;

/** The first that fits: many browsers name others, too. */
const browsers: readonly (readonly [name: string, sign: RegExp])[] = [
  ['Edge', /\bEdg(e|A|iOS)?\//],
  ['Opera', /\bOPR\//],
  ['Samsung Internet', /\bSamsungBrowser\//],
  ['Firefox', /\b(Firefox|FxiOS)\//],
  ['Chrome', /(Chrome|CriOS)\//],
  ['Safari', /\bSafari\//],
];
const systems: readonly (readonly [name: string, sign: RegExp])[] = [
  ['iOS', /iPhone|iPad/],
  ['Android', /Android/],
  ['Windows', /Windows/],
  ['macOS', /Mac OS X|Macintosh/],
  ['ChromeOS', /CrOS/],
  ['Linux', /Linux|X11/],
];

const first = (names: typeof browsers, text: string) => names.find(([, sign]) => sign.test(text))?.[0];

/** A browser and its system by the header User-Agent, such as `Firefox on Windows`, or the name of another program; null if it says none. */
export function browserOf(userAgent: string | undefined): string | null {
  const text = (userAgent ?? '').slice(0, 500);
  const browser = first(browsers, text);
  const system = first(systems, text);
  if (browser !== undefined) return system === undefined ? browser : `${browser} on ${system}`;
  return /^[\w.-]+/.exec(text)?.[0].slice(0, longest) ?? null;
}
