/** Pages that a person has opened lately in this browser, the last one first. */
import { browserStore } from './stores.ts';

const key = 'slipway-recent';
const most = 6;

interface RecentPage {
  path: string;
  name: string;
}

/** Those of `owner`: another person does not read them. */
export function pagesOf(owner: string): RecentPage[] {
  try {
    const kept = JSON.parse(browserStore.get(key) ?? '{}');
    return kept.owner === owner ? kept.pages : [];
  } catch {
    return [];
  }
}

export function notePage(owner: string, page: RecentPage): void {
  const others = pagesOf(owner).filter(({ path }) => path !== page.path);
  browserStore.set(key, JSON.stringify({ owner, pages: [page, ...others].slice(0, most) }));
}

export const forgetPages = () => browserStore.remove(key);
