/** The OpenAPI document as tests read it: a part has all that it can have, and assertions say whether it was there. */
export interface Schema {
  $ref?: string;
  title?: string;
  type: string | string[];
  format?: string;
  const?: unknown;
  enum: string[];
  minLength?: number;
  maxLength: number;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  minItems?: number;
  maxItems?: number;
  pattern?: string;
  required?: string[];
  properties: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items: Schema;
  anyOf: Schema[];
  oneOf?: Schema[];
  allOf: Schema[];
  examples?: unknown[];
}

export interface Content {
  schema: Schema;
  example?: unknown;
}

export interface Parameter {
  $ref?: string;
  in: string;
  name: string;
  required?: boolean;
  schema: Schema;
  example?: unknown;
}

export interface Response {
  $ref?: string;
  description: string;
  headers: Record<string, object>;
  content: Record<string, Content>;
  'x-codes': Record<string, Array<number | string>>;
}

export interface Operation {
  operationId: string;
  summary: string;
  description: string;
  tags: string[];
  security: object[];
  parameters?: Parameter[];
  requestBody?: { content: Record<string, Content> };
  responses: Record<string, Response>;
  'x-callers': string[];
  'x-right'?: string;
  'x-codes': Record<string, Array<number | string>>;
}

export interface OpenApi {
  openapi: string;
  tags: Array<{ name: string; description: string }>;
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema>; parameters: Record<string, Parameter> };
}

/** The document as it is published: what all operations of a path take is said once. */
export interface Published extends Omit<OpenApi, 'paths'> {
  paths: Record<string, { parameters?: Parameter[] } & Partial<Record<'get' | 'post' | 'put' | 'delete', Operation>>>;
}

/** The schema of the JSON that a POST answers with. */
export const answerOf = (document: Pick<OpenApi, 'paths'>, path: string): Partial<Schema> =>
  document.paths[path]?.post?.responses[200]?.content['application/json']?.schema ?? {};

/** The document as the routes make it. */
export const documentOf = ({ server }: { server: { app: { swagger(): object } } }) => server.app.swagger() as OpenApi;

/** What a reference such as `#/components/schemas/Device` points to. */
export function partOf<T>(document: object, reference: string): T {
  const names = reference.split('/').slice(1);
  return names.reduce((part: unknown, name) => (part as Record<string, unknown>)[name], document) as T;
}

/** Every operation, with its method and its path. */
export const operationsOf = ({ paths }: OpenApi): Array<Operation & { method: string; path: string }> =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, ...operation })),
  );
