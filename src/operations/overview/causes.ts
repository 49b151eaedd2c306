/** The causes of refusals in words that follow a colon; broker/reasons.ts has those of messages and filters. */
const sentences: Readonly<Record<string, string>> = {
  notPermitted: 'the sender was not permitted',
  noSuchChannel: 'the channel does not exist',
  noChannelOfItsOwn: 'the product of the device has no such channel',
  noChannelTopic: 'the topic is not that of a channel',
  noChannelFilter: 'the filter cannot match a channel',
  malformedFilter: 'the filter is malformed',
  malformedTopic: 'the topic is malformed',
  payloadTooLarge: 'the payload was too large',
  propertiesTooLarge: 'the message had too many properties',
  notUsable: 'the payload could not be used',
  notReadable: 'the payload could not be read, and was delivered but not stored',
  storedInPart: 'a part of the payload could not be stored',
  notRetained: 'the message could not be retained',
  storeFull: 'the account has no room for messages',
  notStored: 'the message could not be stored',
  tooManyRefusals: 'a client was refused too often',
  tooManyMessages: 'a client sent too many messages',
  tooManyBytes: 'a client sent too many bytes',
  tooManyPoints: 'a client sent too many points',
  tooManyFilters: 'a client has too many filters',
  tooManyFilterBytes: 'the filters of stored sessions are too large',
  badCredentials: 'a device connected with wrong credentials',
  notAuthorized: 'a device was not permitted to connect',
  identifierRejected: 'the client id was rejected',
  unavailable: 'a device could not connect for now',
  failedConnectsPerPrincipal: 'a device failed to connect too often',
  failedConnectsPerAddress: 'too many connections from an address failed',
  connectRatePerAddress: 'too many connections came from an address',
  maxConnectionsPerDevice: 'a device had too many connections',
  maxConnectionsPerPrincipal: 'a client had too many connections',
};

/** A cause without a sentence is named. */
export function refusedFor(cause: string): string {
  return sentences[cause] ?? cause;
}
