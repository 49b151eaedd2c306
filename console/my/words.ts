/** The texts of My devices, which only its pages load. */
import { isolating } from '../isolated.ts';
import { my } from '../languages/en.ts';
import { texts } from '../words.ts';

/** Another language replaces them in place, with all others. */
export const words = isolating(my);
Object.assign(texts, { my: words });
