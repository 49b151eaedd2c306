/** Where devices are, on an outline map that comes with the page. The map is loaded with the first one. */
import { useMemo } from 'preact/hooks';
import { Boundary, useFile } from '../../parts/page/boundary.tsx';
import { texts } from '../../texts.ts';
import type { Position } from './position.ts';

/** One position has a pin; several are dots. */
export function WorldMap(props: { at: readonly Position[]; label: string }) {
  return (
    <Boundary>
      <Picture {...props} />
    </Boundary>
  );
}

function Picture({ at, label }: { at: readonly Position[]; label: string }) {
  const file = useFile(() => import('./outline.ts'));
  const outline = useMemo(() => file?.outlineAround(at), [file, JSON.stringify(at)]);
  return (
    <figure class="map">
      {outline ? (
        <svg viewBox={`0 0 ${outline.width} ${outline.height}`} role="img" aria-label={label}>
          <path class="lines" d={outline.lines} />
          <path class="land" d={outline.land} />
          <path class="borders" d={outline.borders} />
          {at.length === 1 ? (
            <>
              <circle class="halo" cx={outline.width / 2} cy={outline.height / 2} r={16} />
              <circle class="pin" cx={outline.width / 2} cy={outline.height / 2} r={5.5} />
            </>
          ) : (
            <path class="dots" d={outline.dots} />
          )}
        </svg>
      ) : (
        <div class="space" aria-busy="true">
          <span class="hidden">{texts.loading}</span>
        </div>
      )}
    </figure>
  );
}
