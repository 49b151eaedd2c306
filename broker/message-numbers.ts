/** Numbers messages in the order in which they are handed on; after a start it goes on where those on disk end. */
export class MessageNumbers {
  /** That of the last message. */
  last = 0;

  next(): number {
    this.last += 1;
    return this.last;
  }
}
