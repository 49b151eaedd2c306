/** A line chart. The library is loaded with the first one. */
import { useEffect, useRef } from 'preact/hooks';

export interface Line {
  label: string;
  values: (number | null)[];
}

/** `times` are seconds since 1970. */
export function Chart({ label, times, lines }: { label: string; times: number[]; lines: Line[] }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let chart: { destroy(): void } | undefined;
    let isGone = false;
    const colours = ['#4c7dff', '#e0813a', '#3aa66b', '#b45fd6', '#d0505f'];
    const style = getComputedStyle(document.documentElement);
    const [text, grid] = [style.getPropertyValue('--soft'), style.getPropertyValue('--line')];
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
    import('uplot').then(({ default: Plot }) => {
      if (isGone || !place.current) return;
      const options = {
        width: place.current.clientWidth,
        height: 260,
        axes: [axis, axis],
        series: [
          {},
          ...lines.map((line, at) => ({
            label: line.label,
            stroke: colours[at % colours.length] ?? '#4c7dff',
            width: 2,
          })),
        ],
      };
      chart = new Plot(options, [times, ...lines.map(({ values }) => values)], place.current);
    });
    return () => {
      isGone = true;
      chart?.destroy();
    };
  }, [times, lines]);
  return <div ref={place} role="img" aria-label={label} />;
}
