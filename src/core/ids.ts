/**
 * Ids of entities. Three hexadecimal digits of an id are those of its account's id, so that a device id, a topic or a token
 * names the account's place without a directory. The digits are the slot of the account; there are 4,096.
 */
import { randomInt, randomUUID } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';

/** Every slot, from 000 to fff. */
export const allSlots: readonly string[] = Array.from({ length: 0x1000 }, (_, slot) =>
  slot.toString(16).padStart(3, '0'),
);

/** The slot of an id: three digits that UUIDv7 leaves to chance, far from its time, version and variant. */
export function slotOf(id: string): string {
  return id.slice(26, 29);
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function isId(text: string): boolean {
  return text.length === 36 && uuid.test(text);
}

/** A UUID as ids are kept, whatever the case of its digits; any other text as it is. */
export function canonicalId(text: string): string {
  return isId(text) ? text.toLowerCase() : text;
}

/** A new id of an entity of the account: a UUIDv7 in the account's slot, greater than every earlier one of this process. */
export function newId(accountId: string): string {
  return inSlot(uuidv7(), slotOf(accountId));
}

/** A new id of an account, in a slot of its own if there is a free one. `inUse` counts the accounts of each slot. */
export function newAccountId(inUse: ReadonlyMap<string, number>, allowed: readonly string[] = allSlots): string {
  return inSlot(uuidv7(), chooseSlot(inUse, allowed));
}

/** Chooses by chance among those of the allowed slots that have the fewest accounts. */
function chooseSlot(inUse: ReadonlyMap<string, number>, allowed: readonly string[]): string {
  const countOf = (slot: string) => inUse.get(slot) ?? 0;
  const fewest = allowed.reduce((least, slot) => Math.min(least, countOf(slot)), Number.POSITIVE_INFINITY);
  const best = allowed.filter((slot) => countOf(slot) === fewest);
  const slot = best[randomInt(best.length)];
  if (slot === undefined) throw new RangeError('There is no slot to choose from.');
  return slot;
}

function inSlot(id: string, slot: string): string {
  return id.slice(0, 26) + slot + id.slice(29);
}

/** A random UUID that stands alone in a request: it begins with the slot of the account that it belongs to. */
export function newTokenId(accountId: string): string {
  return slotOf(accountId) + randomUUID().slice(3);
}

/**
 * The slots that a text names, in order: ranges and single slots with commas between them, as `000-3ff, 7c1`.
 * Returns undefined if the text is not of this form, or names a slot twice.
 */
export function readSlots(text: string): string[] | undefined {
  const slots = new Set<string>();
  for (const part of text.split(',')) {
    const [, from = '', to = from] = /^([0-9a-f]{3})(?:-([0-9a-f]{3}))?$/.exec(part.trim()) ?? [];
    if (from === '' || to < from) return undefined;
    for (const slot of allSlots.slice(Number.parseInt(from, 16), Number.parseInt(to, 16) + 1)) {
      if (slots.has(slot)) return undefined;
      slots.add(slot);
    }
  }
  return [...slots].sort();
}

/** The shortest text of ranges that `readSlots` reads as these slots. */
export function slotsText(slots: Iterable<string>): string {
  const ranges: { from: string; to: string }[] = [];
  for (const slot of [...slots].sort()) {
    const last = ranges.at(-1);
    if (last && Number.parseInt(last.to, 16) + 1 === Number.parseInt(slot, 16)) last.to = slot;
    else ranges.push({ from: slot, to: slot });
  }
  return ranges.map(({ from, to }) => (from === to ? from : `${from}-${to}`)).join(', ');
}
