/** The name, colour and logo of an account on a page. */
import { useEffect } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { useLoad } from '../parts/data/load.ts';

export interface Branding {
  name: string;
  color: string | null;
  logo: string | null;
}

/** Of an account; the page wears its colour. Empty is no account. */
export function useBranding(account: string): { branding: Branding | undefined; error: unknown } {
  const { data, error } = useLoad(
    async () =>
      account === ''
        ? undefined
        : (await unwrap(api.GET('/api/v1/account/branding', { params: { query: { accountId: account } } }))).branding,
    [account],
  );
  useEffect(() => wearColor(data?.color), [data]);
  return { branding: data, error };
}

/** An SVG is a picture here: nothing in it can run. */
export function BrandMark({ branding: { name, logo } }: { branding: Branding }) {
  return (
    <p class="brandmark">
      {logo === null ? <b>{name}</b> : <img src={logo} alt={name} />}
      {logo !== null && <span>{name}</span>}
    </p>
  );
}

/** Gives the page's buttons the colour, and text that can be read on it. */
export function wearColor(color: string | null | undefined, on: HTMLElement = document.documentElement): void {
  for (const [name, value] of [
    ['--brand', color],
    ['--brand-text', color && textOn(color)],
  ] as const)
    if (value) on.style.setProperty(name, value);
    else on.style.removeProperty(name);
}

/** Black or white, whichever has the higher contrast (WCAG 2). */
export function textOn(color: string): string {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (luminance + 0.05) ** 2 > 1.05 * 0.05 ? '#000000' : '#ffffff';
}
