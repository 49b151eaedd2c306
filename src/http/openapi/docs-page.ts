/** The page at /docs: Swagger UI with our name, its picture and the version. */
import type { FastifySwaggerUiOptions } from '@fastify/swagger-ui';

const boat = 'M5 16h14l-2 3H7zM12 4v9M12 5l5 7h-5';
const square = `<rect width='24' height='24' rx='6' fill='#1f5eff'/>`;
const drawn = `<path d='${boat}' fill='none' stroke='white' stroke-width='1.8'/>`;
const favicon = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'>${square}${drawn}</svg>`;
const logo = `<svg xmlns='http://www.w3.org/2000/svg' width='150' height='40' viewBox='0 0 90 24'>${square}${drawn}<text x='32' y='17'
 fill='white' font-family='system-ui, sans-serif' font-size='14' font-weight='600'>Slipway</text></svg>`;

/** The field for another document does nothing here. */
const css = '.swagger-ui .topbar .download-url-wrapper { visibility: hidden; }';
/** Of the style that Swagger UI puts into the page. test/console/access.test.ts fails when it has another one. */
const ownStyle = "'sha256-RL3ie0nH+Lzz2YNqQN83mnU0J1ot4QL7b99vMdIX99w='";

/**
 * A plugin of Swagger UI, which runs in the browser. The page asks for the security schemes resolved, and resolving goes
 * through the whole document for a second. They have no references, so they are resolved as they are.
 */
const resolveLater = () => ({
  statePlugins: {
    spec: {
      wrapActions: {
        requestResolvedSubtree:
          (resolve: (path: string[]) => unknown, { specActions, specSelectors }: SwaggerUi) =>
          (path: string[]) =>
            path.join() === 'components,securitySchemes'
              ? specActions.updateResolvedSubtree(path, specSelectors.specJson().getIn(path).toJS())
              : resolve(path),
      },
    },
  },
});

/** What the plugin uses of Swagger UI. */
interface SwaggerUi {
  specActions: { updateResolvedSubtree(path: string[], value: object): unknown };
  specSelectors: { specJson(): { getIn(path: string[]): { toJS(): object } } };
}

export const docsPage: FastifySwaggerUiOptions = {
  routePrefix: '/docs',
  // Collapsed, and without its list of schemas: it is there at once. Extensions are the callers and the error codes.
  uiConfig: {
    ...{ validatorUrl: null, docExpansion: 'none', defaultModelsExpandDepth: -1, displayOperationId: true },
    showExtensions: true,
    plugins: [resolveLater],
  },
  // Its own answers would make the document again for everybody who asks.
  uiHooks: {
    onRequest: (request, reply, done) => {
      if (/^\/docs\/(json|yaml)\b/.test(request.url)) reply.redirect('/openapi.json');
      else done();
    },
  },
  theme: {
    title: 'Slipway API',
    css: [{ filename: 'slipway.css', content: css }],
    favicon: [{ filename: 'slipway.svg', rel: 'icon', type: 'image/svg+xml', sizes: 'any', content: favicon }],
  },
  logo: { type: 'image/svg+xml', content: logo, href: '/' },
  staticCSP: true,
  // The pages are served as they are reached, and ask nobody else.
  transformStaticCSP: (header) =>
    header
      .replace(/upgrade-insecure-requests;?|validator\.swagger\.io/g, '')
      .replace(/style-src [^;]*/, `style-src 'self' ${ownStyle}`),
};
