/** The outlines of land and countries around a place, as paths. It is a chunk of its own, for the size of the map. */
import { geoAzimuthalEqualArea, geoGraticule, geoPath } from 'd3-geo';
import { feature, mesh } from 'topojson-client';
import type { GeometryCollection, Topology } from 'topojson-specification';
import world from 'world-atlas/countries-50m.json';

const atlas = world as unknown as Topology<{ countries: GeometryCollection; land: GeometryCollection }>;
const [width, height] = [480, 300];
/** Pixels to the radius of the earth: the picture is about 2,500 km wide. */
const scale = 1250;

export interface Outline {
  width: number;
  height: number;
  land: string;
  borders: string;
  lines: string;
}

export function outlineAround({ latitude, longitude }: { latitude: number; longitude: number }): Outline {
  const projection = geoAzimuthalEqualArea()
    .rotate([-longitude, -latitude])
    .translate([width / 2, height / 2])
    .scale(scale)
    .clipAngle(60)
    .clipExtent([
      [-2, -2],
      [width + 2, height + 2],
    ]);
  const path = geoPath(projection).digits(1);
  return {
    ...{ width, height },
    land: path(feature(atlas, atlas.objects.land)) ?? '',
    borders: path(mesh(atlas, atlas.objects.countries, (a, b) => a !== b)) ?? '',
    lines: path(geoGraticule().step([5, 5])()) ?? '',
  };
}
