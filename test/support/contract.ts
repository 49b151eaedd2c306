/** Holds every answer of a test against the OpenAPI document: what is documented is what is sent. */
import { Ajv, type ValidateFunction } from 'ajv';
import formats from 'ajv-formats';
import type { Json } from './service.js';

export class Contract {
  // The package is CommonJS: its default export is the plugin.
  readonly #ajv = (formats as unknown as (ajv: Ajv) => Ajv)(new Ajv({ strict: false, allErrors: true }));
  readonly #validators = new Map<string, ValidateFunction>();
  readonly #routes: Array<{ path: string; matches: RegExp; operations: Json }>;

  constructor(document: Json) {
    this.#routes = Object.entries(document.paths as Json)
      .map(([path, operations]) => ({
        path,
        operations,
        matches: new RegExp(`^${path.replace(/[.*]/g, '\\$&').replace(/\{[^}]*\}/g, '[^/]+')}$`),
      }))
      // A path without parameters is meant before one with.
      .sort((a, b) => a.path.split('{').length - b.path.split('{').length);
  }

  /** @throws Error naming the route and what does not fit. */
  check(method: string, url: string, status: number, body: unknown): void {
    const path = url.split('?')[0] ?? '';
    const route = this.#routes.find(
      ({ matches, operations }) => matches.test(path) && operations[method.toLowerCase()],
    );
    if (!route) return;
    const { responses } = route.operations[method.toLowerCase()];
    const key = [String(status), `${String(status)[0]}XX`].find((name) => responses[name]);
    if (!key) throw new Error(`${method} ${route.path}: status ${status} is not documented`);
    const schema = responses[key].content?.['application/json']?.schema;
    if (!schema) return;
    const name = `${method} ${route.path} ${key}`;
    const validate = this.#validators.get(name) ?? this.#ajv.compile(schema);
    this.#validators.set(name, validate);
    if (!validate(body))
      throw new Error(`${name}: ${this.#ajv.errorsText(validate.errors)} in ${JSON.stringify(body)}`);
  }
}
