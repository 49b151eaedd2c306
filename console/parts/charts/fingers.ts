/** Two fingers on a chart make what it shows larger, smaller, earlier or later. One finger scrolls the page. */
import { pinched, type Span } from './span.ts';

/** `element` shows `span` over its width. `onMove` is given the span to show at each move, `onEnd` the one that was chosen. */
export function followFingers(
  element: HTMLElement,
  { span, onMove, onEnd }: { span: () => Span; onMove: (span: Span) => void; onEnd: (span: Span) => void },
): void {
  const places = new Map<number, number>();
  let begun: { span: Span; at: [number, number] } | undefined;
  let seen: Span | undefined;
  const both = () => [...places.values()] as [number, number];
  const placeOf = ({ clientX }: PointerEvent) => clientX - element.getBoundingClientRect().left;
  element.addEventListener('pointerdown', (event) => {
    if (event.pointerType === 'mouse' || places.size === 2) return;
    places.set(event.pointerId, placeOf(event));
    if (places.size === 2) begun = { span: { ...span() }, at: both() };
  });
  element.addEventListener('pointermove', (event) => {
    if (!places.has(event.pointerId)) return;
    places.set(event.pointerId, placeOf(event));
    if (!begun || places.size < 2) return;
    seen = pinched(begun.span, element.clientWidth, begun.at, both());
    onMove(seen);
  });
  const lift = ({ pointerId }: PointerEvent) => {
    if (!places.delete(pointerId) || !begun) return;
    begun = undefined;
    if (seen) onEnd(seen);
    seen = undefined;
  };
  element.addEventListener('pointerup', lift);
  element.addEventListener('pointercancel', lift);
}
