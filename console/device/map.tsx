/** Where a device is, on an outline map that comes with the page. The map is loaded with the first one. */
import { useEffect, useState } from 'preact/hooks';
import { texts } from '../texts.ts';
import type { Outline } from './outline.ts';

export interface Position {
  latitude: number;
  longitude: number;
}

export function WorldMap({ at, label }: { at: Position; label: string }) {
  const [outline, setOutline] = useState<Outline>();
  const { latitude, longitude } = at;
  useEffect(() => {
    let isGone = false;
    import('./outline.ts').then(({ outlineAround }) => isGone || setOutline(outlineAround({ latitude, longitude })));
    return () => {
      isGone = true;
    };
  }, [latitude, longitude]);
  return (
    <figure class="map">
      {outline ? (
        <svg viewBox={`0 0 ${outline.width} ${outline.height}`} role="img" aria-label={label}>
          <path class="lines" d={outline.lines} />
          <path class="land" d={outline.land} />
          <path class="borders" d={outline.borders} />
          <circle class="halo" cx={outline.width / 2} cy={outline.height / 2} r={16} />
          <circle class="pin" cx={outline.width / 2} cy={outline.height / 2} r={5.5} />
        </svg>
      ) : (
        <div class="space" aria-busy="true">
          <span class="hidden">{texts.loading}</span>
        </div>
      )}
    </figure>
  );
}
