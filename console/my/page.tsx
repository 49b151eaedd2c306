/** The head of a page of customers, without a word of the API. */
import type { ComponentChildren } from 'preact';
import { Link } from 'wouter-preact';
import { Stale } from '../parts/data/stale.tsx';
import { Heading } from '../parts/page/shown.tsx';
import { useTitle } from '../parts/page/title.ts';
import { words } from './words.ts';

/** `brand` is whose product it is. */
export function MyPage({
  title,
  brand,
  isBelow,
  actions,
  children,
}: {
  title: string;
  brand: string;
  /** Whether the way back to all devices is shown. */
  isBelow?: boolean;
  actions?: ComponentChildren;
  children: ComponentChildren;
}) {
  useTitle(title, brand);
  return (
    <>
      {isBelow && (
        <p>
          <Link href="/">‹ {words.title}</Link>
        </p>
      )}
      <div class="head">
        <Heading title={title} />
        {actions}
      </div>
      <Stale />
      {children}
    </>
  );
}
