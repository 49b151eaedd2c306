/** QR codes: their modules, and as SVG. */
import { type ErrorCorrection, encodeQR } from 'qr';

/** Modules of the quiet zone that readers need around a code. */
const border = 4;

/** Rows of modules with the quiet zone: true where it is dark. @throws Error for a text that fits into no code. */
export function qrModules(text: string, ecc: ErrorCorrection): boolean[][] {
  return encodeQR(text, 'raw', { ecc, border });
}

/** A code, dark on white also where the page is dark. On a screen nothing is scratched away. @throws Error as `qrModules`. */
export function qrSvg(text: string, ecc: ErrorCorrection = 'low'): string {
  const rows = qrModules(text, ecc).map((row) => row.map((dark) => (dark ? '#' : ' ')).join(''));
  const size = rows.length;
  const lines = rows.flatMap((row, y) =>
    Array.from(row.matchAll(/#+/g), ({ 0: run, index }) => `M${index} ${y}.5h${run.length}`),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size} ${size}" shape-rendering="crispEdges"><path fill="#ffffff" d="M0 0h${size}v${size}H0z"/><path stroke="#000000" d="${lines.join('')}"/></svg>`;
}
