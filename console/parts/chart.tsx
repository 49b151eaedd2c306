/** A line chart. The library is loaded with the first one. */
import { useEffect, useRef, useState } from 'preact/hooks';

export interface Line {
  label: string;
  values: (number | null)[];
}

/** Pixels. */
const height = 180;

/** `times` are seconds since 1970. */
export function Chart({ label, times, line }: { label: string; times: number[]; line: Line }) {
  const place = useRef<HTMLDivElement>(null);
  const [isDrawn, setDrawn] = useState(false);
  useEffect(() => {
    let chart: { destroy(): void; setSize(size: { width: number; height: number }): void } | undefined;
    const resized = new ResizeObserver(([entry]) => {
      if (entry) chart?.setSize({ width: entry.contentRect.width, height });
    });
    let isGone = false;
    const style = getComputedStyle(document.documentElement);
    const [text, grid, stroke] = ['--soft', '--line', '--accent'].map((name) => style.getPropertyValue(name));
    const axis = { stroke: text ?? '', grid: { stroke: grid ?? '', width: 1 }, ticks: { stroke: grid ?? '' } };
    import('uplot').then(({ default: Plot }) => {
      if (isGone || !place.current) return;
      const options = {
        width: place.current.clientWidth,
        height,
        axes: [axis, axis],
        hooks: { draw: [() => setDrawn(true)] },
        series: [{}, { label: line.label, stroke: stroke ?? '', width: 2, spanGaps: true }],
      };
      chart = new Plot(options, [times, line.values], place.current);
      resized.observe(place.current);
    });
    return () => {
      isGone = true;
      resized.disconnect();
      chart?.destroy();
    };
  }, [times, line]);
  return <div ref={place} class="chart" role="img" aria-label={label} aria-busy={!isDrawn} />;
}
