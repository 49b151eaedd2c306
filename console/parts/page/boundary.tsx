/** What fails inside is told in its place, with a way on: the rest of the page stays, and no page is blank. */
import type { ComponentChildren } from 'preact';
import { useEffect, useErrorBoundary, useState } from 'preact/hooks';
import { texts } from '../../words.ts';
import { Button } from '../forms/form.tsx';

/** Another `of`, such as the place of the page, gets another try. */
export function Boundary({ of, children }: { of?: string; children: ComponentChildren }) {
  const [error, again] = useErrorBoundary();
  useEffect(() => {
    if (error) again();
  }, [of]);
  if (!error) return <>{children}</>;
  return (
    <div class="note bad" role="alert">
      <p>{error instanceof FileError ? texts.fileMissing : texts.broken(String((error as Error).message))}</p>
      <Button label={texts.loadAgain} onClick={() => location.reload()} />
    </div>
  );
}

/** A file of the page could not be had. */
export class FileError extends Error {}

/** A file that is loaded with the first use of what needs it. Without it the part of the page fails. */
export function useFile<T>(load: () => Promise<T>): T | undefined {
  const [{ file, error }, setLoaded] = useState<{ file?: T; error?: Error }>({});
  useEffect(() => {
    let isGone = false;
    load().then(
      (file) => isGone || setLoaded({ file }),
      (cause) => isGone || setLoaded({ error: new FileError(texts.fileMissing, { cause }) }),
    );
    return () => {
      isGone = true;
    };
  }, []);
  if (error) throw error;
  return file;
}
