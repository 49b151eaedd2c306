/** Placeholder: the line's branch has the real one. */
import type { FlashFormat, Unit } from './unit.js';

export function flashFile(format: FlashFormat, unit: Unit): { extension: string; content: string } {
  const extension = { 'esp-nvs-csv': 'csv', env: 'env', 'c-header': 'h', json: 'json' }[format];
  return { extension, content: JSON.stringify(unit) };
}
