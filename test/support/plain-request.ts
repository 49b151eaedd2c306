/** Requests that the schemas of the OpenAPI document accept, for things that are not there. */
import type { Operation, Schema } from './openapi.ts';

export type PlainOperation = Operation & { method: string; path: string };

/** A request of an operation; what it names is not there. */
export function plainRequest({ method, path, parameters = [], requestBody }: PlainOperation, accountId: string) {
  const exampleOf = (name: string, schema: Schema | undefined): unknown => {
    if (!schema) return undefined;
    if (schema.type === 'object') {
      const { required = [], properties } = schema;
      return Object.fromEntries(required.map((one: string) => [one, exampleOf(one, properties[one])]));
    }
    if (Array.isArray(schema.type) && schema.type.includes('null')) return null;
    if (name === 'accountId') return accountId;
    if (name === 'associationCode') return '000000000000';
    if (schema.type === 'integer') return 1;
    if (schema.type === 'boolean') return true;
    return schema.enum?.[0] ?? '1';
  };
  const values = (place: string) =>
    parameters
      .filter((one) => one.in === place && one.required)
      .map(({ name, schema }) => [name, String(exampleOf(name, schema))] as [string, string]);
  const schema = requestBody?.content['application/json']?.schema;
  const required: string[] = schema?.required ?? [];
  const body = schema && Object.fromEntries(required.map((name) => [name, exampleOf(name, schema.properties[name])]));
  const query = new URLSearchParams(values('query'));
  const url = `${path.replace(/\{\w+\}/g, 'nothing')}?${query}`;
  return { method, url, headers: Object.fromEntries(values('header')), ...(body && { body }) };
}
