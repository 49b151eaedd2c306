/** What a device of a group does, as lines for a terminal. */

export interface EnrollingGroup {
  id: string;
  proof: 'claimSecret' | 'derivedKey' | 'certificate';
  issues: 'secret' | 'certificate' | 'either';
  serialNumberPattern: string;
}

/** A serial number that the pattern lets in, and that a terminal takes as it is. */
function serialNumberFor(pattern: string): string {
  const example = pattern === '*' ? 'SN-0001' : pattern.replaceAll('*', '0001').replaceAll('?', '0');
  return /^[\w.:-]+$/.test(example) ? example : 'SN-0001';
}

/** The key of a serial number, from the group key: what the factory burns in. */
const derivedKey = (serialNumber: string) =>
  `KEY=$(printf '%s' '${serialNumber}' | openssl dgst -sha256 -hmac "$GROUP_KEY" -binary | openssl base64 -A | tr '+/' '-_' | tr -d =)`;
const certificateRequest = (serialNumber: string) =>
  `openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout device.key -subj '/CN=${serialNumber}' -out device.csr`;

/** The lines of `slipway enroll`, and of curl; the secret of the group is a variable that stands before them. */
export function enrollLines(url: string, { id, proof, issues, serialNumberPattern }: EnrollingGroup) {
  const serialNumber = serialNumberFor(serialNumberPattern);
  const hasRequest = issues === 'certificate';
  const first = hasRequest ? [certificateRequest(serialNumber)] : [];
  const proofs = {
    claimSecret: { slipway: `--serial ${serialNumber} --secret "$CLAIM_SECRET"`, curl: `-u "${id}:$CLAIM_SECRET"` },
    derivedKey: {
      slipway: `--serial ${serialNumber} --group-key "$GROUP_KEY"`,
      curl: `-u "${id}/${serialNumber}:$KEY"`,
    },
    certificate: { slipway: '--cert factory.crt --key factory.key', curl: '--cert factory.crt --key factory.key' },
  }[proof];
  const named = proof === 'certificate' ? `"groupId":"${id}"` : `"serialNumber":"${serialNumber}"`;
  const request = hasRequest ? `,"csr":"'"$(openssl req -in device.csr -outform DER | openssl base64 -A)"'"` : '';
  return {
    slipway: [
      ...first,
      `slipway enroll --url ${url} --group ${id} ${proofs.slipway}${hasRequest ? ' --csr device.csr' : ''}`,
    ].join('\n'),
    curl: [
      ...first,
      ...(proof === 'derivedKey' ? [derivedKey(serialNumber)] : []),
      `curl -sS ${proofs.curl} ${url}/api/v1/enroll -H 'Content-Type: application/json' -d '{${named}${request}}'`,
    ].join('\n'),
  };
}

/** The variable that the lines of a group use. */
export function secretLine({ claimSecret, groupKey }: { claimSecret?: string; groupKey?: string }): string {
  if (claimSecret !== undefined) return `export CLAIM_SECRET=${claimSecret}`;
  return groupKey === undefined ? '' : `export GROUP_KEY=${groupKey}`;
}
