/** Commands that a product declares, as what can be done with a device. */
import { api, unwrap } from '../../app/api.ts';
import type { Entity } from '../../app/entities.ts';
import { type Schema, SchemaFields, valueFrom } from '../../parts/forms/schema.tsx';
import type { Outcome, Verb } from '../../parts/lists/verbs.tsx';

export type DeclaredCommand = Entity<'deviceTemplate'>['commands'][number];
export interface Order {
  name: string;
  payload?: unknown;
}

export async function sendCommand(id: string, body: Order) {
  await unwrap(api.POST('/api/v1/devices/{id}/commands', { params: { path: { id } }, body }));
}

/** Each is sent at once, by a form of its parameters, and after a question where it is to be confirmed. */
export function commandVerbs(
  id: string,
  commands: readonly DeclaredCommand[],
  words: { sent: string; sendVerb: string; ask: (title: string) => string; askSays: string },
): Verb[] {
  return commands.map(({ name, title, description, parameters, confirm }) => {
    const run = async (order: Order): Promise<Outcome> => {
      await sendCommand(id, order);
      return { said: words.sent };
    };
    const asked = (order: Order): Verb => ({
      text: title,
      ask: { title: words.ask(title), says: description ?? words.askSays },
      run: () => run(order),
    });
    if (!parameters) return confirm ? asked({ name }) : { text: title, run: () => run({ name }) };
    const schema = parameters as Schema;
    const form: Verb['form'] = {
      title,
      verb: words.sendVerb,
      fields: () => [description, <SchemaFields of={schema} />],
      save: async (values) => {
        const order = { name, payload: valueFrom(schema, values) };
        return confirm ? { said: '', next: asked(order) } : run(order);
      },
    };
    return { text: title, form };
  });
}
