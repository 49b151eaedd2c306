import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { temporaryDirectory } from '../support/directory.ts';

/** A self-signed certificate for localhost and its key, for tests of the TLS listener and for nothing else. */
const testCertificate = `-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUcUc4mC6nYALWtMgbZjjTu3aG9KIwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTEwNDY0MFoYDzIxMjYxMDI4
MTA0NjQwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQR/ZsaT0BW36hqQz8zbh/scSbdILRuh1sLCwYIMUIVd2wiFmpLvHVl
9DCmuA2k/9wEr2Mcf2/mt+FmzcN45xogo28wbTAdBgNVHQ4EFgQUjkTUU9C3N8bV
eyfyu2kY/FdKDyEwHwYDVR0jBBgwFoAUjkTUU9C3N8bVeyfyu2kY/FdKDyEwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIgHiwup0TBp9WVs1E0Q9+8wsBHCgxhbqJW02hs08qPu0ACIQCJ
8WV28cx6ZTbEPY9y7L011cfdS15o7SCcv4Z/UzgFsQ==
-----END CERTIFICATE-----
`;

const testKey = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgl2Oz3UqEUhJZ5uhd
Hcan/tHMZbF7DK8iBKDjIJav0MqhRANCAAQR/ZsaT0BW36hqQz8zbh/scSbdILRu
h1sLCwYIMUIVd2wiFmpLvHVl9DCmuA2k/9wEr2Mcf2/mt+FmzcN45xog
-----END PRIVATE KEY-----
`;

/** Until the test ends, this process trusts certificates that nobody has signed. */
export function trustAnyCertificate(t: Test): void {
  const name = 'NODE_TLS_REJECT_UNAUTHORIZED';
  const { [name]: before } = process.env;
  process.env[name] = '0';
  t.teardown(() => {
    if (before === undefined) delete process.env[name];
    else process.env[name] = before;
  });
}

/** The settings for TLS with this certificate, which the test trusts. */
export function certificate(t: Test): Record<string, string> {
  trustAnyCertificate(t);
  return certificateFiles(t);
}

/** The same, without that trust. */
export function certificateFiles(t: Test): Record<string, string> {
  const directory = temporaryDirectory(t);
  const paths = { SLIPWAY_TLS_CERT: join(directory, 'cert.pem'), SLIPWAY_TLS_KEY: join(directory, 'key.pem') };
  writeFileSync(paths.SLIPWAY_TLS_CERT, testCertificate);
  writeFileSync(paths.SLIPWAY_TLS_KEY, testKey, { mode: 0o600 });
  return paths;
}
