/** A deletion for good: what there is no trash for. */
import { type Kind, remove, type Version } from '../app/entities.ts';
import type { Verb } from '../parts/verbs.tsx';
import { texts } from '../texts.ts';

export function ending(kind: Kind, of: Version & { name: string }): Verb {
  const { deleteOf, deleteSays } = texts.programs;
  const run = async () => {
    await remove(kind, of);
    return { said: texts.people.deleted(of.name) };
  };
  return {
    text: texts.delete,
    kind: 'danger',
    ask: { title: deleteOf(of.name), says: deleteSays, typed: of.name },
    run,
  };
}
