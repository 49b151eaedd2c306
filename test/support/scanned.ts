/** What a camera reads of a QR code that the service has drawn. */
import decode from 'qr/decode.js';

/** The rows of a picture: whether each of its points is dark. */
export type Points = boolean[][];

/** The text of a code whose modules are points, or squares of points. @throws Error where no code is seen. */
export function scan(points: Points, scale = 1): string {
  const size = points.length * scale;
  const data = new Uint8Array(size * size * 4).map((_, at) => {
    const [x, y] = [Math.floor(((at >> 2) % size) / scale), Math.floor(Math.floor((at >> 2) / size) / scale)];
    return points[y]?.[x] && at % 4 < 3 ? 0 : 255;
  });
  return decode({ width: size, height: size, data });
}

/** The text of a code in SVG, whose dark modules are lines such as `M4 4.5h7`. */
export function scanSvg(svg: string): string {
  const size = Number(/viewBox="0 0 (\d+) \1" shape/.exec(svg)?.[1]);
  const points: Points = Array.from({ length: size }, () => Array(size).fill(false));
  const path = /stroke="#000000" d="([^"]+)"/.exec(svg)?.[1] ?? '';
  for (const [, x, y, length] of path.matchAll(/M(\d+) (\d+)\.5h(\d+)/g))
    points[Number(y)]?.fill(true, Number(x), Number(x) + Number(length));
  return scan(points, 4);
}
