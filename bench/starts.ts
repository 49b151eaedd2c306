/** How long it takes from the start of the process until it listens, with a large registry. */
import { median, type Row } from './figures.ts';
import type { Bench } from './sizes.ts';

/** Seconds. */
const figure = 1.2;
/** The first start makes what a registry from elsewhere has not. */
const starts = 6;

export async function measureStarts({ size, directory, serve }: Bench): Promise<Row[]> {
  const large = await directory(size.large);
  const seconds: number[] = [];
  const cpu: number[] = [];
  for (let start = 0; start < starts; start += 1) {
    const from = performance.now();
    const service = await serve(large);
    seconds.push((performance.now() - from) / 1000);
    cpu.push(service.cpu());
    await service.stop();
  }
  console.log(`seconds until it listens: ${seconds.map((second) => second.toFixed(2)).join(', ')}`);
  const [, ...later] = seconds;
  return [
    {
      what: 'Start until it listens, median of five',
      devices: size.large,
      ours: median(later),
      unit: 's',
      figure: { below: figure },
    },
    { what: 'CPU time of it', devices: size.large, ours: median(cpu.slice(1)), unit: 's' },
  ];
}
