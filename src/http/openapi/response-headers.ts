/** The headers of successful responses, for the OpenAPI document. */

/** Headers that a route may send: the version of an entity, a token, the rest of a limit, ended connections. */
export type Sent = 'etag' | 'ignored' | 'token' | 'limits' | 'revocation';

const allowed = 'Requests allowed in one window.';
const left = 'Requests that are left in this window.';
const windowEnd = 'Seconds until the window ends.';
const waitFor = 'With 429 and 503: seconds after which to try again.';

export const limitHeaders = {
  'ratelimit-limit': { type: 'integer', description: allowed },
  'ratelimit-remaining': { type: 'integer', description: left },
  'ratelimit-reset': { type: 'integer', description: windowEnd },
};
export const retryHeaders = { 'retry-after': { type: 'integer', description: waitFor }, ...limitHeaders };

const requestId = 'The id of the request, which the log has too.';
const renewed = 'A new token, if the token of the request is older than a minute.';
const ignored = 'Comma-separated names of properties or parameters of the request that had no effect.';
const replayed = '`true` if this is the first response to the same Idempotency-Key again.';
const notKept = '`not-kept` if the response is too long to be sent again.';
const revoked = '`connections=N; subscriptions=N`: what ended over MQTT before this response was sent.';

/** Descriptions of the headers that the head of the published document has, instead of each operation. */
export const commonHeaders: readonly string[] = [
  ...[requestId, renewed, ignored, replayed, notKept, revoked],
  ...[allowed, left, windowEnd, waitFor],
];

/** The head of the document: headers that any response may have. */
export function describeCommonHeaders(prefix: string): string {
  return [
    `Responses can have these headers:\n`,
    `- \`x-request-id\`: ${requestId}`,
    `- \`${prefix}-access-token\`: ${renewed}`,
    `- \`${prefix}-ignored-properties\`: ${ignored}`,
    `- \`${prefix}-revocation\`: ${revoked}`,
    `- \`idempotent-replayed\`: ${replayed}`,
    `- \`${prefix}-idempotency\`: ${notKept}`,
    `- \`retry-after\`: ${waitFor}`,
    `- \`ratelimit-limit\`: ${allowed}`,
    `- \`ratelimit-remaining\`: ${left}`,
    `- \`ratelimit-reset\`: ${windowEnd}`,
  ].join('\n');
}

/** The headers of one operation's successful response. `prefix` is SLIPWAY_HEADER_PREFIX. */
export function responseHeaders(
  prefix: string,
  { creates, hasSession }: { creates: boolean; hasSession: boolean },
  sends: readonly Sent[],
) {
  const text = (description: string) => ({ type: 'string', description });
  return {
    'x-request-id': text(requestId),
    ...(sends.includes('limits') ? limitHeaders : {}),
    ...(sends.includes('token') ? { [`${prefix}-access-token`]: text('The token.') } : {}),
    ...(hasSession ? { [`${prefix}-access-token`]: text(renewed) } : {}),
    ...(sends.includes('etag') ? { ETag: text('The version of the entity, quoted.') } : {}),
    ...(sends.includes('ignored') ? { [`${prefix}-ignored-properties`]: text(ignored) } : {}),
    ...(sends.includes('revocation') ? { [`${prefix}-revocation`]: text(revoked) } : {}),
    ...(creates ? { 'idempotent-replayed': text(replayed), [`${prefix}-idempotency`]: text(notKept) } : {}),
  };
}
