/** What a station may make (decisions 6). Placeholder: the stations' branch has the real one. */
import type { Tx } from '../../db/index.js';
import type { Caller } from '../access.js';
import type { Clock } from '../context.js';

/** Takes `count` devices off what a station may still make; of any other caller there is no count. */
export async function reserve(_tx: Tx, _caller: Caller, _count: number, _clock: Clock): Promise<void> {}

/** The template and the organization that a caller asks for; a station's own where it asks for none. */
export function askedPlace<P extends { deviceTemplateId?: string; organizationId?: string | null }>(
  _caller: Caller,
  asked: P,
): Pick<P, 'deviceTemplateId' | 'organizationId'> {
  return asked;
}
