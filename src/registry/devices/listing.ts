/** Filters, sorts and counts of lists of devices. */
import type { Listing } from '../../entity/listing.js';

export const deviceListing: Listing<'devices'> = {
  table: 'devices',
  filters: {
    deviceTemplateId: 'exact',
    organizationId: 'reference',
    serialNumber: 'partial',
    provisioningState: 'exact',
    firmwareVersion: 'partial',
    latitude: 'latitude',
    longitude: 'longitude',
    connected: 'flag',
    lastConnected: 'date',
    externalIp: 'exact',
    geoIpLatitude: 'latitude',
    geoIpLongitude: 'longitude',
    reverseDns: 'exact',
  },
  sorts: [
    'created',
    'lastModified',
    'id',
    'deviceTemplateId',
    'organizationId',
    'provisioningState',
    'firmwareVersion',
  ],
  defaultSort: 'serialNumber',
  reach: 'organizationId',
  counted: {
    columns: ['deviceTemplateId', 'organizationId', 'provisioningState', 'connected'],
    everywhere: 'deviceCounts',
    placed: 'placedDeviceCounts',
  },
  text: ['serialNumber', 'firmwareVersion'],
};
