import { Level4 } from './level-4.ts';

/** MQTT 3.1: DUP where a packet is sent again, whatever it is, and no word about sessions. */
export class Level3 extends Level4 {
  override readonly level = 3;

  override accepted(): Buffer {
    return super.accepted(false);
  }

  protected override isFlagged(flags: number): boolean {
    return (flags & 6) === 2;
  }

  protected override mayRepeat(): boolean {
    return true;
  }
}
