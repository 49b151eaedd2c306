import { LRUCache } from 'lru-cache';

/**
 * A cache of at most `most` entries, the least recently used of which go first. It takes memory as it fills: given
 * `max`, lru-cache takes all of it at once, a few megabytes for each cache and tens of milliseconds at every start.
 */
export function boundedCache<K extends {}, V extends {}>(most: number): LRUCache<K, V> {
  return new LRUCache<K, V>({ maxSize: most, sizeCalculation: () => 1 });
}

/** As boundedCache, of entries whose sizes together are at most `most`; none is larger. */
export function sizedCache<K extends {}, V extends {}>(most: number, sizeOf: (value: V) => number): LRUCache<K, V> {
  return new LRUCache<K, V>({ maxSize: most, sizeCalculation: sizeOf });
}
