/** Most have either children or holders: there are none until the first one comes, as an empty map or set takes some 200 bytes. */
interface Node<H> {
  children: Map<string, Node<H>> | undefined;
  /** Who has the filter that ends here, such as client ids. */
  holders: Set<H> | undefined;
}

/** Topic filters by level, so that the holders of those that match a topic are found without trying each. */
export class FilterTree<H = string> {
  readonly #root: Node<H> = newNode();
  #size = 0;

  /** How many filters are held; one is counted once for each holder. */
  get size(): number {
    return this.#size;
  }

  add(filter: string, holder: H): void {
    let node = this.#root;
    for (const level of filter.split('/')) {
      node.children ??= new Map();
      let child = node.children.get(level);
      if (!child) {
        child = newNode();
        node.children.set(level, child);
      }
      node = child;
    }
    node.holders ??= new Set();
    if (!node.holders.has(holder)) this.#size += 1;
    node.holders.add(holder);
  }

  delete(filter: string, holder: H): void {
    const levels = filter.split('/');
    const path = [this.#root];
    for (const level of levels) {
      const child = path.at(-1)?.children?.get(level);
      if (!child) return;
      path.push(child);
    }
    if (path.at(-1)?.holders?.delete(holder)) this.#size -= 1;
    for (let depth = levels.length; depth > 0; depth -= 1) {
      const { children, holders } = path[depth] as Node<H>;
      if (children?.size || holders?.size) return;
      path[depth - 1]?.children?.delete(levels[depth - 1] as string);
    }
  }

  /** Holders of a matching filter, each once. */
  match(topic: string): Set<H> {
    const found = new Set<H>();
    // Filters that begin with a wildcard do not match topics that begin with `$` [MQTT-4.7.2-1].
    collect(this.#root, topic.split('/'), 0, found, topic.startsWith('$'));
    return found;
  }
}

function newNode<H>(): Node<H> {
  return { children: undefined, holders: undefined };
}

function collect<H>(node: Node<H>, levels: string[], depth: number, found: Set<H>, literal: boolean): void {
  if (!literal) {
    const rest = node.children?.get('#');
    if (rest) take(rest, found);
  }
  if (depth === levels.length) {
    take(node, found);
    return;
  }
  const exact = node.children?.get(levels[depth] as string);
  if (exact) collect(exact, levels, depth + 1, found, false);
  const any = literal ? undefined : node.children?.get('+');
  if (any) collect(any, levels, depth + 1, found, false);
}

function take<H>({ holders }: Node<H>, found: Set<H>): void {
  if (holders) for (const holder of holders) found.add(holder);
}
