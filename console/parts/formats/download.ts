/** Saves what the page has made as a file. */
export function download(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** As `download`, named after what it holds and the day. The mark at its beginning tells spreadsheets that it is UTF-8. */
export function downloadCsv(name: string, text: string): void {
  const day = new Date().toLocaleDateString('sv');
  download(`${name} ${day}.csv`, new Blob(['\ufeff', text], { type: 'text/csv;charset=utf-8' }));
}
