/** Wakes the one who waits for it. What rings while nobody waits is heard at once by who comes then. */
export class Bell {
  #hasRung = false;
  #wake = () => {};

  ring(): void {
    this.#hasRung = true;
    this.#wake();
  }

  /** What has rung so far says nothing new. */
  silence(): void {
    this.#hasRung = false;
  }

  async heard(): Promise<void> {
    if (!this.#hasRung)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
  }
}
