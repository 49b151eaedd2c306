/** Where a device is. */
export interface Position {
  latitude: number;
  longitude: number;
}

type Placed = Readonly<Record<'latitude' | 'longitude' | 'geoIpLatitude' | 'geoIpLongitude', unknown>>;

/** Its own position, else the one of the network that it comes from. */
export function positionOf(device: Placed): { at: Position; isGuess: boolean } | undefined {
  const own = toPosition(device.latitude, device.longitude);
  if (own) return { at: own, isGuess: false };
  const guess = toPosition(device.geoIpLatitude, device.geoIpLongitude);
  return guess && { at: guess, isGuess: true };
}

function toPosition(latitude: unknown, longitude: unknown): Position | undefined {
  if (latitude === null || longitude === null || latitude === undefined || longitude === undefined) return undefined;
  const at = { latitude: Number(latitude), longitude: Number(longitude) };
  return Number.isFinite(at.latitude) && Number.isFinite(at.longitude) ? at : undefined;
}
