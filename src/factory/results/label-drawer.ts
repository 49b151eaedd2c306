/** Draws labels in a thread: a QR code takes up to a tenth of a second. Accounts take turns, then callers. */

import { AskedThread } from '../../../db/threads/asked-thread.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import { Scheduler } from '../../core/scheduler/scheduler.ts';
import type { Label } from '../provisioning/unit.ts';

/** The part of a label to draw: all of it, its QR code as an image, or its QR code within a page. */
export type Drawing = 'svg' | 'png' | 'square';
export interface LabelQuestion {
  drawing: Drawing;
  label: Label;
}
/** Text of SVG, bytes of PNG. */
export type LabelAnswer = string | Uint8Array;

/** Labels on their way to the thread and back. */
const askedAtOnce = 2;

export class LabelDrawer {
  readonly #thread = new AskedThread<LabelQuestion, LabelAnswer>(
    new URL('./label-worker.ts', import.meta.url),
    'The drawer of labels',
  );
  readonly #queue = new Scheduler({ atOnce: askedAtOnce });

  /** Labels that wait for the thread. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /** @throws PlatformError 429/-199 when the lane has too many waiting; Error when the thread fails. */
  draw(lane: Lane, drawing: Drawing, label: Label): Promise<LabelAnswer> {
    return this.#queue.run(lane, 1, () => this.#thread.ask({ drawing, label }));
  }

  close(): Promise<void> {
    return this.#thread.close();
  }
}
