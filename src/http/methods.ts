/** Lists the methods that a URL supports, for a request with another method. */
import type { App } from './app.ts';

/**
 * Follows the routes that are added to the app from now on. The function that it returns gives the methods of a URL,
 * none if no route has it.
 */
export function methodsByUrl(app: App): (url: string) => string[] {
  const routes = new Map<string, { matches: RegExp; methods: string[] }>();
  app.addHook('onRoute', ({ url, method }) => {
    // Preflights are answered for every URL, whether it exists or not.
    if (url === '*') return;
    const route = routes.get(url) ?? { matches: patternOf(url), methods: [] };
    route.methods.push(...[method].flat());
    routes.set(url, route);
  });
  return (url) => {
    const path = url.split('?', 1)[0]?.replace(/(?<=.)\/$/, '') ?? '';
    const found = [...routes.values()].filter(({ matches }) => matches.test(path));
    return [...new Set(found.flatMap(({ methods }) => methods))].sort();
  };
}

/** `/devices/:id` as a pattern: a parameter is one segment, `*` is the rest of the path. */
function patternOf(url: string): RegExp {
  const escaped = url.replace(/[.+?^${}()|[\]\\]/g, '\\$&');
  const pattern = escaped.replace(/:[^/]+/g, '[^/]+').replace(/\*/g, '.*');
  return new RegExp(`^${pattern.replace(/(?<=.)\/$/, '')}$`);
}
