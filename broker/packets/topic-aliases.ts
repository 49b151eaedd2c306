/** Aliases of the topics that a client has been sent most recently [MQTT-3.3.2.3.4]. */
export class TopicAliases {
  /** The topic that was sent longest ago first. */
  readonly #byTopic = new Map<string, number>();
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  get areUsed(): boolean {
    return this.#most > 0;
  }

  /** The alias of a topic, and whether the client knows it; `alias` is undefined where none may be used. */
  choose(topic: string): { alias: number | undefined; isKnown: boolean } {
    if (this.#most === 0) return { alias: undefined, isKnown: false };
    const known = this.#byTopic.get(topic);
    if (known !== undefined) return { alias: known, isKnown: true };
    if (this.#byTopic.size < this.#most) return { alias: this.#byTopic.size + 1, isKnown: false };
    const [oldest] = this.#byTopic.values();
    return { alias: oldest, isKnown: false };
  }

  /** The topic is being sent with the alias that was chosen. */
  use(topic: string, alias: number): void {
    if (!this.#byTopic.delete(topic) && this.#byTopic.size === this.#most) {
      const [oldest] = this.#byTopic.keys();
      this.#byTopic.delete(oldest as string);
    }
    this.#byTopic.set(topic, alias);
  }
}
