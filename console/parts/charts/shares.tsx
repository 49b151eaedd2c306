/** Parts of a whole as lines with a bar each. */
import type { ComponentChildren } from 'preact';

export interface Share {
  key: string;
  name: ComponentChildren;
  /** How many it is, and how many of these are online. */
  count: number;
  online?: number;
  says: string;
  /** Below the bar. */
  more?: ComponentChildren;
}

export function ShareList({ of: shares }: { of: readonly Share[] }) {
  const most = Math.max(...shares.map(({ count }) => count));
  return (
    <ul class="shares">
      {shares.map(({ key, name, count, online, says, more }) => (
        <li key={key}>
          {name}
          <span class="soft small">{says}</span>
          <svg class="bar" aria-hidden="true">
            <rect class="part" width={`${(100 * count) / most}%`} height="100%" />
            {online !== undefined && <rect class="part on" width={`${(100 * online) / most}%`} height="100%" />}
          </svg>
          {more}
        </li>
      ))}
    </ul>
  );
}
