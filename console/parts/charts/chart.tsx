/** A chart of one value over time, of one or several devices. The library is loaded with the first one. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type UPlot from 'uplot';
import { texts } from '../../texts.ts';
import { download, downloadCsv } from '../formats/download.ts';
import { numbers, wholeTimes } from '../formats/times.ts';
import { Button } from '../forms/form.tsx';
import { Boundary, useFile } from '../page/boundary.tsx';
import { csvOf, type Line, type Plotted, type Pointer, plot, pointedAt, shownAt } from './chart-lines.ts';
import { followFingers } from './fingers.ts';
import { colourOf, optionsOf, type ShownPlot } from './plot.ts';
import { moved, type Span, zoomed } from './span.ts';
import { dashes, Swatch } from './swatch.tsx';

const words = texts.charts;

export interface ChartProps {
  /** What is measured, and in which unit. */
  title: string;
  unit: string;
  lines: readonly Line[];
  isState: boolean;
  /** Seconds since 1970, and between points at least. */
  from: number;
  to: number;
  /** What is to be shown, before it is there. */
  asked: Span;
  bucket: number;
  /** Told of a part that was chosen with the pointer, by fingers, or by keys. */
  onZoom: (from: number, to: number) => void;
}

const schemes = ['(prefers-color-scheme: dark)', '(forced-colors: active)'];

/** Which colours are in use: a drawing does not know by itself that they have changed. */
function useScheme(): string {
  const read = () => schemes.map((one) => matchMedia(one).matches).join();
  const [scheme, setScheme] = useState(read);
  useEffect(() => {
    const queries = schemes.map((one) => matchMedia(one));
    const change = () => setScheme(read());
    for (const query of queries) query.addEventListener('change', change);
    return () => {
      for (const query of queries) query.removeEventListener('change', change);
    };
  }, []);
  return scheme;
}

export function Chart(props: ChartProps) {
  return (
    <Boundary>
      <Drawn {...props} />
    </Boundary>
  );
}

function Drawn({ title, unit, lines, isState, from, to, asked, bucket, onZoom }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const [isDrawn, setDrawn] = useState(false);
  const [pointer, setPointer] = useState<Pointer | null>(null);
  const at = pointer?.at ?? null;
  /** What the arrow keys have come to: of what changes by itself nothing is announced. */
  const [said, setSaid] = useState<string>();
  const scheme = useScheme();
  const plotted = useMemo(() => plot(lines, bucket, isState), [lines, bucket, isState]);
  const latest = useRef({ plotted, from, to, onZoom });
  latest.current = { plotted, from, to, onZoom };
  const form = [scheme, isState, unit, lines.length, plotted.levels?.join('\n')].join(' ');
  const chart = useDrawing(place, form, { latest, isState, onAt: setPointer, onDrawn: () => setDrawn(true) });
  useEffect(() => chart.current?.setData(dataOf(plotted)), [plotted, from, to]);
  const move = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = spanByKey(event, asked, plotted.times[at ?? -1]);
    if (span) {
      event.preventDefault();
      setSaid(`${wholeTimes.format(span.from * 1000)} – ${wholeTimes.format(span.to * 1000)}`);
      return onZoom(span.from, span.to);
    }
    const moves: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };
    const step = moves[event.key];
    if (step === undefined || !chart.current) return;
    event.preventDefault();
    const last = plotted.times.length - 1;
    const next = Math.min(last, Math.max(0, (at ?? (step < 0 ? last + 1 : -1)) + step));
    chart.current.setCursor({ left: chart.current.valToPos(plotted.times[next] ?? 0, 'x'), top: 10 });
    const pointed = { at: next, time: plotted.times[next] ?? 0, near: 0 };
    const { time, values } = shownOf({ plotted, lines, unit, isState, pointer: pointed });
    setSaid([time, ...values.map(({ name, text }) => `${name} ${text}`)].join(', '));
  };
  const files = `${title} ${new Date(to * 1000).toISOString().slice(0, 16).replace(':', '-')}`;
  return (
    <div class="charted">
      <div class="row heading">
        <h3>
          {title} {unit && <span class="soft">{unit}</span>}
        </h3>
        <span class="row">
          <Button
            label="PNG"
            class="plain"
            aria-label={words.pngOf(title)}
            onClick={() => chart.current && savePicture(chart.current.ctx.canvas, `${title} ${unit}`, lines, files)}
          />
          <Button
            label="CSV"
            class="plain"
            aria-label={words.csvOf(title)}
            onClick={() => downloadCsv(title, csvOf(title, lines))}
          />
        </span>
      </div>
      <Readout {...{ plotted, lines, unit, isState, pointer }} />
      <p class="hidden" role="status">
        {said}
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the arrow keys go from value to value */}
      {/* biome-ignore lint/a11y/useSemanticElements: it is no group of fields */}
      <div class="keyed" role="group" tabIndex={0} aria-label={words.keys(title)} onKeyDown={move}>
        <div ref={place} class="chart" role="img" aria-label={texts.device.chart(title)} aria-busy={!isDrawn} />
      </div>
    </div>
  );
}

/** The drawing in a place of the page: it is made anew with another `form`. Its library is loaded with the first one. */
function useDrawing(
  place: { current: HTMLElement | null },
  form: string,
  {
    latest,
    isState,
    onAt,
    onDrawn,
  }: { latest: { current: ShownPlot }; isState: boolean; onAt: (at: Pointer | null) => void; onDrawn: () => void },
): { current: UPlot | undefined } {
  const chart = useRef<UPlot>();
  const Plot = useFile(() => import('uplot'))?.default;
  useEffect(() => {
    const parent = place.current;
    if (!Plot || !parent) return;
    const now = () => latest.current;
    const options = optionsOf(Plot, parent, { latest: now(), now, isState, onAt, onDrawn });
    const drawn = new Plot(options, dataOf(now().plotted), parent);
    chart.current = drawn;
    const resized = new ResizeObserver(([entry]) => {
      if (entry) drawn.setSize({ width: entry.contentRect.width, height: drawn.height });
    });
    resized.observe(parent);
    followFingers(drawn.over, {
      span: () => ({ from: drawn.scales.x?.min ?? 0, to: drawn.scales.x?.max ?? 0 }),
      onMove: ({ from, to }) => drawn.setScale('x', { min: from, max: to }),
      onEnd: ({ from, to }) => now().onZoom(from, to),
    });
    return () => {
      resized.disconnect();
      drawn.destroy();
      chart.current = undefined;
    };
  }, [form, Plot]);
  return chart;
}

/** Plus and minus change what is seen, around the value that the arrow keys have come to; Shift and an arrow move it. */
function spanByKey({ key, shiftKey }: KeyboardEvent, span: Span, around: number | undefined): Span | undefined {
  if (key === '+' || key === '=') return zoomed(span, 0.5, around);
  if (key === '-') return zoomed(span, 2, around);
  if (shiftKey && key === 'ArrowLeft') return moved(span, -0.5);
  if (shiftKey && key === 'ArrowRight') return moved(span, 0.5);
  return undefined;
}

const dataOf = ({ times, values }: Plotted) => [times, ...values] as UPlot.AlignedData;

type Pointed = { plotted: Plotted; pointer: Pointer | null } & Pick<ChartProps, 'lines' | 'unit' | 'isState'>;

/** The values under the pointer and the time of the nearest; without a pointer, the last ones. */
function shownOf({ plotted, lines, unit, isState, pointer }: Pointed) {
  const { times, values, levels } = plotted;
  const last = times.length - 1;
  const places = lines.map((_, line) =>
    // Without a pointer each line shows its own last value.
    pointer ? pointedAt(plotted, line, pointer, isState) : shownAt(values[line] ?? [], last, true),
  );
  const away = (place: number) => Math.abs((times[place] ?? 0) - (pointer?.time ?? 0));
  const [nearest] = places.filter((place) => place !== null).sort((a, b) => away(a) - away(b));
  const time = pointer ? (times[nearest ?? -1] ?? pointer.time) : times[last];
  return {
    time: time === undefined ? '–' : wholeTimes.format(time * 1000),
    values: lines.map(({ name }, line) => {
      const value = values[line]?.[places[line] ?? -1];
      if (typeof value !== 'number') return { name, text: '–' };
      return { name, text: levels ? levels[value] : `${numbers.format(value)} ${unit}`.trim() };
    }),
  };
}

function Readout(pointed: Pointed) {
  const { time, values } = shownOf(pointed);
  return (
    <p class="readout">
      <time>{time}</time>
      {values.map(({ name, text }, line) => (
        <span key={name}>
          <Swatch line={line} /> {values.length > 1 && <bdi>{name}</bdi>} <b>{text}</b>
        </span>
      ))}
    </p>
  );
}

/** Pixels above the drawing, for the title and whose lines these are. */
const head = 44;

function savePicture(canvas: HTMLCanvasElement, title: string, lines: readonly Line[], name: string): void {
  const picture = document.createElement('canvas');
  const ratio = devicePixelRatio;
  picture.width = canvas.width;
  picture.height = canvas.height + head * ratio;
  const context = picture.getContext('2d');
  if (!context) return;
  context.fillStyle = colourOf('--panel');
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(canvas, 0, head * ratio);
  context.scale(ratio, ratio);
  context.fillStyle = colourOf('--text');
  context.font = '600 14px system-ui, sans-serif';
  context.fillText(title, 10, 18);
  context.font = '12px system-ui, sans-serif';
  let left = 10;
  for (const [line, { name }] of lines.entries()) {
    context.strokeStyle = colourOf(`--line-${line + 1}`);
    context.lineWidth = 2;
    context.setLineDash([...(dashes[line] ?? [])]);
    context.stroke(new Path2D(`M${left} 33h26`));
    context.fillText(name, left + 30, 37);
    left += 46 + context.measureText(name).width;
  }
  picture.toBlob((blob) => blob && download(`${name}.png`, blob));
}
