/** The products of the fleet: what their devices measure, in which unit, and what they would say at a time. */

const minute = 60_000;
const hour = 60 * minute;
const sampleEvery = 15 * minute;
export const samplesPerDay = (24 * hour) / sampleEvery;

type Category = { name: string; label: string; unit?: string; kind: 'number' | 'state' };
const degrees: Category = { name: 'temperature', label: 'Temperature', unit: '°C', kind: 'number' };

export const products = [
  {
    ...{ name: 'Room sensor', prefix: 'RS', share: 0.6, firmware: '2.3.0' },
    categories: [
      degrees,
      { name: 'humidity', label: 'Humidity', unit: '%', kind: 'number' },
      { name: 'battery', label: 'Battery', unit: 'V', kind: 'number' },
    ],
  },
  {
    ...{ name: 'Cold-room monitor', prefix: 'CM', share: 0.25, firmware: '1.8.2' },
    categories: [degrees, { name: 'door', label: 'Door', kind: 'state' }],
  },
  {
    ...{ name: 'Pump controller', prefix: 'PC', share: 0.12, firmware: '4.0.1' },
    categories: [
      { name: 'flow', label: 'Flow', unit: 'l/min', kind: 'number' },
      { name: 'pressure', label: 'Pressure', unit: 'bar', kind: 'number' },
      { name: 'current', label: 'Current', unit: 'A', kind: 'number' },
      { name: 'mode', label: 'Mode', kind: 'state' },
    ],
  },
  {
    ...{ name: 'Gateway', prefix: 'GW', share: 0.03, firmware: '7.2.0' },
    categories: [
      { name: 'load', label: 'Load', unit: '%', kind: 'number' },
      { name: 'uptime', label: 'Uptime', unit: 'h', kind: 'number' },
    ],
  },
] as const satisfies { categories: readonly Category[]; [more: string]: unknown }[];

/** What devices of a product send. */
export function categoriesOf(product: string): string[] {
  return products.find(({ name }) => name === product)?.categories.map(({ name }) => name) ?? [];
}

/** A value as a sensor has it at a time: the hour of the day, the device and a little noise. */
function readingOf(category: string, device: number, time: number): number | string {
  const wave = Math.sin(((time % (24 * hour)) / (24 * hour)) * 2 * Math.PI - 2);
  const own = ((device * 37) % 100) / 100;
  const noise = Math.random() - 0.5;
  if (category === 'door') return Math.random() < 0.08 ? 'open' : 'closed';
  if (category === 'mode') return wave > 0.6 ? 'boost' : wave > -0.3 ? 'run' : 'idle';
  const values: Record<string, number> = {
    temperature: 20 + 3 * wave + 2 * own + 0.4 * noise,
    humidity: 50 - 8 * wave + 6 * own + 2 * noise,
    battery: 3.6 - 0.5 * own + 0.01 * noise,
    flow: 42 + 12 * wave + 5 * own + 2 * noise,
    pressure: 4.1 + 0.4 * own + 0.05 * noise,
    current: 11 + 3 * wave + own + 0.3 * noise,
    load: 35 + 20 * wave + 10 * own + 8 * noise,
    uptime: Math.round((time % (9 * 24 * hour)) / hour),
  };
  return Math.round((values[category] ?? 0) * 100) / 100;
}

/** Lines of CSV: one for each category. */
export function readingsOf(product: string, device: number, time: number): string {
  const iso = new Date(time).toISOString();
  const cell = (value: number | string) => (typeof value === 'number' ? `${value},` : `,${value}`);
  return categoriesOf(product)
    .map((category) => `${iso},${category},${cell(readingOf(category, device, time))}\n`)
    .join('');
}

/** The readings of the last day. */
export function dayOf(product: string, device: number): string {
  const now = Math.floor(Date.now() / sampleEvery) * sampleEvery;
  const times = Array.from({ length: samplesPerDay }, (_, n) => now - n * sampleEvery);
  return times.map((time) => readingsOf(product, device, time)).join('');
}
