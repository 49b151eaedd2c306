/** The Range header of a download. */

/**
 * The first and last byte that are asked for; undefined for all of them, also where several ranges are asked for, which
 * nobody has to obey; `outside` when there are no such bytes.
 */
export function readRange(
  header: string | undefined,
  size: number,
): { from: number; to: number } | 'outside' | undefined {
  const [, first = '', last = ''] = /^bytes=(\d*)-(\d*)$/i.exec(header?.trim() ?? '') ?? [];
  if (first === '' && last === '') return undefined;
  if (first === '') {
    const length = Math.min(Number(last), size);
    return length === 0 ? 'outside' : { from: size - length, to: size - 1 };
  }
  const from = Number(first);
  const to = last === '' ? size - 1 : Math.min(Number(last), size - 1);
  if (last !== '' && Number(last) < from) return undefined;
  return from >= size ? 'outside' : { from, to };
}

/** Whether an If-None-Match header names the content: one etag, several, weak ones, or any. */
export function namesEtag(header: string | undefined, etag: string): boolean {
  const named = (header ?? '').split(',').map((one) => one.trim().replace(/^W\//, ''));
  return named.includes(etag) || named.includes('*');
}
