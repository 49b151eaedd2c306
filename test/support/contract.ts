/** Holds every answer of a test against the OpenAPI document: what is documented is what is sent. */
import { Ajv, type ValidateFunction } from 'ajv';
import formats from 'ajv-formats';
import type { Failure } from './answers.ts';
import type { OpenApi, Operation, Schema } from './openapi.ts';

interface Route {
  path: string;
  matches: RegExp;
  operations: Record<string, Operation>;
}

export class Contract {
  /** Without its check of the schemas, which takes longer than to compile them: a test of its own reads the document. */
  readonly #ajv = new Ajv({ strict: false, allErrors: true, validateSchema: false, meta: false });
  /** By route and status, and by schema: most errors are one. */
  readonly #validators = new Map<string, ValidateFunction>();
  /** By how many parts their paths have. */
  readonly #routes = new Map<number, Route[]>();

  constructor(document: OpenApi) {
    // The package is CommonJS: its default export is the plugin.
    (formats as unknown as (ajv: Ajv) => void)(this.#ajv);
    this.#ajv.addSchema({ $id: 'api', components: document.components });
    const routes = Object.entries(document.paths)
      .map(([path, operations]) => ({
        path,
        operations,
        matches: new RegExp(`^${path.replace(/[.*]/g, '\\$&').replace(/\{[^}]*\}/g, '[^/]+')}$`),
      }))
      // A path without parameters is meant before one with.
      .sort((a, b) => a.path.split('{').length - b.path.split('{').length);
    for (const route of routes) {
      const parts = route.path.split('/').length;
      this.#routes.set(parts, [...(this.#routes.get(parts) ?? []), route]);
    }
  }

  /** Of an answer that is no JSON, whose body is undefined, the status alone. @throws Error naming the route and what does not fit. */
  check(method: string, url: string, status: number, body: unknown): void {
    // With a slash at its end it is the same path.
    const path = (url.split('?')[0] ?? '').replace(/\/$/, '');
    const verb = method.toLowerCase();
    const route = this.#routes
      .get(path.split('/').length)
      ?.find(({ matches, operations }) => operations[verb] && matches.test(path));
    // What cannot be decoded reaches no operation.
    const operation = route?.operations[verb];
    if (!operation || !isDecodable(path)) return;
    const { responses, 'x-codes': made } = operation;
    const name = `${method} ${route.path} ${status}`;
    const response = responses[status] ?? responses.default;
    // As the routes make it, and as it is published: there, errors that any operation can answer are its default response.
    const published: unknown = responses[status] ? response?.['x-codes'] : response?.['x-codes']?.[status];
    const codes = (made?.[status] ?? published) as unknown[] | undefined;
    if (!responses[status] && !codes) throw new Error(`${name}: the status is not documented`);
    if (body === undefined) return;
    const content = response?.content?.['application/json'];
    if (!content) throw new Error(`${name}: JSON is not documented`);
    // A list answers with whole results unless the query names properties.
    const [whole, chosen] = content.schema.anyOf ?? [];
    const isChosen = (new URLSearchParams(url.split('?')[1]).get('fields') ?? '') !== '';
    const schema = chosen?.title === 'With fields' ? (isChosen ? chosen : whole) : undefined;
    const key = `${name}${isChosen ? ' chosen' : ''}`;
    const validate = this.#validators.get(key) ?? this.#compiled(schema ?? content.schema);
    this.#validators.set(key, validate);
    if (!validate(body))
      throw new Error(`${name}: ${this.#ajv.errorsText(validate.errors)} in ${JSON.stringify(body)}`);
    if (status < 400) return;
    const { error, attributes } = body as Failure;
    const code = attributes?.errorCode ?? error.code;
    if (!codes?.includes(code)) throw new Error(`${name}: the code ${code} is not documented`);
  }

  #compiled(schema: Schema): ValidateFunction {
    const text = JSON.stringify(schema).replaceAll('"#/components/', '"api#/components/');
    const validate = this.#validators.get(text) ?? this.#ajv.compile(JSON.parse(text));
    this.#validators.set(text, validate);
    return validate;
  }
}

function isDecodable(path: string): boolean {
  try {
    decodeURIComponent(path);
    return true;
  } catch {
    return false;
  }
}
