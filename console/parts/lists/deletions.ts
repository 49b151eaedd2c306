/** What takes a thing away: to the trash, or for good. */
import { type Kind, remove, type Version } from '../../app/entities.ts';
import { texts } from '../../texts.ts';
import type { Verb } from './verbs.tsx';

type Named = Version & { name: string };

/** To the trash, and back by Undo. What is lost besides is `says`; where that is nothing, nobody is asked. */
export function deletion(kind: Kind, of: Named, says?: string, to?: string): Verb {
  const run = async () => ({ said: texts.trashed(of.name), undo: await remove(kind, of), to });
  return {
    ...{ text: texts.delete, kind: 'danger', run },
    ...(says !== undefined && { ask: { title: texts.deleteOf(of.name), says } }),
  };
}

/** For good: there is no trash for it. */
export function ending(kind: Kind, of: Named): Verb {
  const run = async () => {
    await remove(kind, of);
    return { said: texts.wasDeleted(of.name) };
  };
  const ask = { title: texts.deleteOf(of.name), says: texts.deleteForGood, typed: of.name };
  return { text: texts.delete, kind: 'danger', ask, run };
}
