/** The commands that a product declares. */
import { change, readOne } from '../app/entities.ts';
import { can } from '../app/session.ts';
import type { DeclaredCommand } from '../device/commands/declared.tsx';
import type { Values } from '../parts/forms/form.tsx';
import { parsed } from '../parts/forms/schema.tsx';
import type { EntityList } from '../parts/lists/entity-page.tsx';
import { creating, type Verb } from '../parts/lists/verbs.tsx';
import { texts } from '../texts.ts';

const words = texts.products;
type Edit = (commands: DeclaredCommand[]) => DeclaredCommand[];
type Row = DeclaredCommand & { id: string };

/** `onChanged` is called after each change of the product. */
export function commandsOf(product: string, onChanged: () => void): EntityList<Row> {
  const edit = async (to: Edit) => {
    const now = await readOne('deviceTemplate', product);
    await change('deviceTemplate', now, { commands: to(now.commands) });
    onChanged();
  };
  const form = (
    save: (made: DeclaredCommand) => Edit,
    of?: DeclaredCommand,
  ): Omit<NonNullable<Verb['form']>, 'title'> => ({
    wide: true,
    values: { ...of, parameters: of?.parameters && JSON.stringify(of.parameters, null, 2) },
    fields: () => [
      { name: 'name', label: texts.name, required: true, maxLength: 100, hint: words.commandNameHint },
      { name: 'title', label: words.commandTitle, required: true, maxLength: 100 },
      { name: 'description', label: texts.description, maxLength: 1000 },
      { name: 'parameters', label: words.parameters, isLong: true, hint: words.parametersHint },
      { name: 'confirm', label: words.confirm, tick: 'true' },
      { name: 'forCustomers', label: words.forCustomers, tick: 'true' },
    ],
    save: (values) => edit(save(commandIn(values))),
  });
  const replacing =
    ({ name }: DeclaredCommand, made?: DeclaredCommand): Edit =>
    (commands) =>
      commands.flatMap((one) => (one.name === name ? (made ?? []) : one));
  const editing = (of: DeclaredCommand): Verb => ({
    text: texts.edit,
    form: { title: texts.verbOf(texts.edit, of.name), ...form((made) => replacing(of, made), of) },
  });
  const removing = (of: DeclaredCommand): Verb => ({
    text: texts.delete,
    kind: 'danger',
    run: async () => {
      await edit(replacing(of));
      return { said: words.commandDeleted(of.name), undo: () => edit((commands) => [...commands, declared(of)]) };
    },
  });
  return {
    label: texts.commands.title,
    kind: 'deviceTemplate',
    param: 'commands',
    empty: words.noCommands,
    load: async () => {
      const { commands } = await readOne('deviceTemplate', product);
      return { results: commands.map((command) => ({ id: command.name, ...command })) };
    },
    columns: [
      { name: 'name', label: texts.name, show: ({ name }) => name },
      { name: 'title', label: words.commandTitle, show: ({ title }) => title },
      { name: 'parameters', label: words.parameters, wrap: true, show: parametersOf },
      { name: 'confirm', label: words.confirm, show: ({ confirm }) => (confirm ? texts.yes : texts.no) },
      { name: 'for', label: words.forCustomers, show: ({ forCustomers }) => (forCustomers ? texts.yes : texts.no) },
    ],
    create: () =>
      can('update', 'deviceTemplate') &&
      creating(
        words.newCommand,
        form((made) => (commands) => [...commands, made]),
      ),
    verbs: (of) => [can('update', 'deviceTemplate') && editing(of), can('update', 'deviceTemplate') && removing(of)],
  };
}

function parametersOf({ parameters = {} }: DeclaredCommand): string {
  const { properties = {} } = parameters as { properties?: object };
  return Object.keys(properties).join(', ') || '–';
}

const declared = ({ id: _, ...command }: DeclaredCommand & { id?: string }): DeclaredCommand => command;

function commandIn({ name = '', title = '', description, parameters, confirm, forCustomers }: Values): DeclaredCommand {
  return {
    name,
    title,
    ...(description && { description }),
    ...(parameters && { parameters: parsed(parameters, words.parameters) as Record<string, unknown> }),
    ...(confirm && { confirm: true }),
    ...(forCustomers && { forCustomers: true }),
  };
}
