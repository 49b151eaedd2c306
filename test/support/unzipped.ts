/** What is in a ZIP, for tests. */
import yauzl from 'yauzl';

/** The files of a ZIP by name. */
export async function unzipped(bytes: Buffer): Promise<Map<string, Buffer>> {
  const zip = await new Promise<yauzl.ZipFile>((resolve, reject) =>
    yauzl.fromBuffer(bytes, { lazyEntries: true }, (error, opened) => (error ? reject(error) : resolve(opened))),
  );
  const files = new Map<string, Buffer>();
  const ended = new Promise((resolve, reject) => zip.once('end', resolve).once('error', reject));
  zip.on('entry', (entry: yauzl.Entry) =>
    zip.openReadStream(entry, async (_, stream) => {
      const pieces: Buffer[] = [];
      for await (const piece of stream) pieces.push(piece as Buffer);
      files.set(entry.fileName, Buffer.concat(pieces));
      zip.readEntry();
    }),
  );
  zip.readEntry();
  await ended;
  return files;
}
