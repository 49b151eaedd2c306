import { LRUCache } from 'lru-cache';

/**
 * A cache of at most `most` entries, the least recently used of which go first. It takes memory as it fills: given
 * `max`, lru-cache takes all of it at once, a few megabytes for each cache and tens of milliseconds at every start.
 */
export function boundedCache<K extends {}, V extends {}>(most: number): LRUCache<K, V> {
  return new LRUCache<K, V>({ maxSize: most, sizeCalculation: () => 1 });
}
