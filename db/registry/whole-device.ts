/** One device as the view `wholeDevices` shows it. SQLite opens a join in 25 µs, and looks up these values in one. */
const presence = (name: string) => `(SELECT p."${name}" FROM "devicePresence" AS p WHERE p."row" = d."row")`;
const noted = ['lastConnected', 'externalIp', 'geoIpLatitude', 'geoIpLongitude', 'reverseDns'];

export const wholeDeviceById = `SELECT d.*, substr(d."accountId", 27) AS "account",
  coalesce(${presence('connected')}, 0) AS "connected", ${noted.map((name) => `${presence(name)} AS "${name}"`).join(', ')}
  FROM "devices" AS d WHERE d."id" = ?`;
