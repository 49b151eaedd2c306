/** How uPlot draws: our colours, local times, steps, and what it tells. */
import type Plot from 'uplot';
import { numbersApart, shortTimes } from '../formats/times.ts';
import { type Plotted, type Pointer, shownAt } from './chart-lines.ts';
import type { Span } from './span.ts';
import { dashes } from './swatch.tsx';

/** Of the text size of the page. */
const height = 13.4;
const letter = 0.47;
/** Pixels that must be dragged for a part to be chosen. */
const leastDrag = 8;
const maxLevel = 16;
/** Pixels from the pointer to a point of which it tells where no line is drawn. */
const nearby = 16;

export interface ShownPlot extends Span {
  plotted: Plotted;
  onZoom: (from: number, to: number) => void;
}

/** A colour of the style sheet, as a canvas takes it: also where the person's own colours stand for ours. */
export function colourOf(name: string): string {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.color = `var(${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

export function optionsOf(
  library: typeof Plot,
  parent: HTMLElement,
  {
    latest: { plotted },
    now,
    isState,
    onAt,
    onDrawn,
  }: {
    latest: ShownPlot;
    now: () => ShownPlot;
    isState: boolean;
    onAt: (at: Pointer | null) => void;
    onDrawn: () => void;
  },
): Plot.Options {
  const size = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  const axis = {
    stroke: colourOf('--soft'),
    grid: { stroke: colourOf('--line'), width: 1 },
    ticks: { show: false },
    font: `${Math.round(0.8 * size)}px system-ui, sans-serif`,
  };
  const { levels } = plotted;
  const path = isState ? library.paths.stepped?.({ align: 1 }) : undefined;
  const cut = (text: string) => (text.length > maxLevel ? `${text.slice(0, maxLevel - 1)}…` : text);
  return {
    width: parent.clientWidth,
    height: height * size,
    legend: { show: false },
    cursor: {
      drag: { x: true, y: false, setScale: false, dist: leastDrag },
      dataIdx: (_, line, closest) =>
        line === 0 ? closest : (shownAt(now().plotted.values[line - 1] ?? [], closest, isState) ?? closest),
    },
    scales: {
      x: { time: true, range: () => [now().from, now().to] },
      ...(levels && { y: { range: () => [-0.5, levels.length - 0.5] } }),
    },
    axes: [
      {
        ...axis,
        size: 2 * size,
        space: 4.7 * size,
        values: (_, splits, _axis, _space, step) => shortTimes(splits, step),
      },
      {
        ...axis,
        size: (_, values) => size * Math.max(3, 1.2 + letter * Math.max(0, ...(values ?? []).map((one) => one.length))),
        values: (_, splits, _axis, _space, step) =>
          levels ? splits.map((one) => cut(levels[one] ?? '')) : numbersApart(splits, step),
        ...(levels && { splits: () => levels.map((_, level) => level) }),
      },
    ],
    series: [
      {},
      ...(plotted.values.map((_, line) => ({
        stroke: colourOf(`--line-${line + 1}`),
        width: 2,
        dash: dashes[line]?.map((pixels) => pixels * devicePixelRatio),
        points: { show: plotted.times.length < 60 ? true : undefined, size: 5 },
        ...(path && { paths: path }),
      })) as Plot.Series[]),
    ],
    hooks: {
      draw: [onDrawn],
      setCursor: [
        (chart) => {
          const { left = -1, idx } = chart.cursor;
          if (left < 0 || idx === null || idx === undefined) return onAt(null);
          const time = chart.posToVal(left, 'x');
          onAt({ at: idx, time, near: Math.abs(chart.posToVal(left + nearby, 'x') - time) });
        },
      ],
      setSelect: [
        (chart) => {
          const { left, width } = chart.select;
          if (width < leastDrag) return;
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          now().onZoom(chart.posToVal(left, 'x'), chart.posToVal(left + width, 'x'));
        },
      ],
    },
  };
}
