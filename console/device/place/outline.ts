/** The outlines of land and countries around places, as paths. It is a chunk of its own, for the size of the map. */
import { geoAzimuthalEqualArea, geoCentroid, geoDistance, geoEqualEarth, geoGraticule, geoPath } from 'd3-geo';
import { feature, mesh } from 'topojson-client';
import type { GeometryCollection, Topology } from 'topojson-specification';
import world from 'world-atlas/countries-50m.json';
import type { Position } from './position.ts';

const atlas = world as unknown as Topology<{ countries: GeometryCollection; land: GeometryCollection }>;
const [width, height] = [480, 300];
/** Pixels to the radius of the earth: the picture is about 2,500 km wide. More places may need more of the earth. */
const largestScale = 1250;
/** Pixels from a place to the edge. */
const margin = 20;

export interface Outline {
  width: number;
  height: number;
  land: string;
  borders: string;
  lines: string;
  /** A point for each place. */
  dots: string;
}

type Point = [longitude: number, latitude: number];

/** What shows all places: the part of the earth around them, or all of it. */
function projectionFor(points: Point[]) {
  const [longitude = 0, latitude = 0] = geoCentroid({ type: 'MultiPoint', coordinates: points });
  const reach = Math.max(...points.map((point) => geoDistance(point, [longitude, latitude])));
  // Of places all around the earth there is no middle.
  if (!(reach < Math.PI / 2))
    return geoEqualEarth()
      .translate([width / 2, height / 2])
      .scale(width / 5.5);
  const scale = Math.min(largestScale, (height / 2 - margin) / (2 * Math.sin(reach / 2)));
  return geoAzimuthalEqualArea()
    .rotate([-longitude, -latitude])
    .translate([width / 2, height / 2])
    .scale(scale)
    .clipAngle(Math.max(60, (reach * 180) / Math.PI + 5));
}

export function outlineAround(places: readonly Position[]): Outline {
  const points = places.map(({ latitude, longitude }): Point => [longitude, latitude]);
  const projection = projectionFor(points).clipExtent([
    [-2, -2],
    [width + 2, height + 2],
  ]);
  const path = geoPath(projection).digits(1);
  return {
    ...{ width, height },
    land: path(feature(atlas, atlas.objects.land)) ?? '',
    borders: path(mesh(atlas, atlas.objects.countries, (a, b) => a !== b)) ?? '',
    lines: path(geoGraticule().step([5, 5])()) ?? '',
    dots: points
      .map((point) => projection(point))
      .map((at) => (at ? `M${at[0].toFixed(1)} ${at[1].toFixed(1)}h0` : ''))
      .join(''),
  };
}
