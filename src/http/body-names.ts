/** The names in bodies: those that have no effect are named in a header, or refused with SLIPWAY_STRICT_BODIES. */
import type { preValidationHookHandler, RouteOptions } from 'fastify';
import type { App } from './app.ts';
import { refuseUnknownProperties, sayIgnored } from './ignored-names.ts';
import { isObject, type NamedSchema, namesOf } from './schema-names.ts';

/** Looks at the bodies of all routes mounted after it, before their values: a mistyped name is why another is missing. */
export function lookAtBodyNames(app: App): void {
  app.addHook('onRoute', (route) => {
    const schema = route.schema?.body as NamedSchema | undefined;
    const names = schema && namesOf(schema);
    if (!names) return;
    const config = route.config ?? {};
    route.config = { ...config, sends: [...new Set([...(config.sends ?? []), 'ignored' as const])] };
    // Those of entities with custom fields are looked at by their kind, which knows the fields.
    if (config.hasCustomFields) return;
    const shown = shownNames(route);
    const look: preValidationHookHandler = (request, reply, done) => {
      const { body } = request;
      if (app.strictBodies) refuseUnknownProperties(body, schema, shown);
      if (isObject(body))
        sayIgnored(
          request,
          reply,
          Object.keys(body).filter((name) => !names.includes(name)),
        );
      done();
    };
    route.preValidation = [...[route.preValidation ?? []].flat(), look];
  });
}

/** The names of the entity that a route answers with: clients send whole entities back. */
function shownNames({ schema }: RouteOptions): string[] {
  const { 200: answer } = (schema?.response ?? {}) as Record<number, NamedSchema>;
  return Object.values(answer?.properties ?? {}).flatMap(({ properties = {} }) => Object.keys(properties));
}
