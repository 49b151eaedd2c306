/** `slipway verify`: whether a unit really connects and publishes. */

import { Ending, exitCodes, refused, UsageError } from '../usage.ts';
import { reasonOf } from './client.ts';
import { type Connection, printError } from './options.ts';
import { withClient } from './work.ts';

interface Verification {
  deviceId: string;
  passed: boolean;
  connected: boolean;
  published: boolean;
  time: string;
}

interface VerifyFlags extends Connection {
  serial: string | undefined;
  device: string | undefined;
  /** Seconds. */
  timeout: number;
}

export async function verify(flags: VerifyFlags): Promise<void> {
  const { serial: serialNumber, device: deviceId, timeout: timeoutSeconds } = flags;
  if ((serialNumber === undefined) === (deviceId === undefined))
    throw new UsageError('Either --serial or --device is needed.');
  await withClient(flags, printError, async (client) => {
    const answer = await client.call('POST', '/provisioning/verify', {
      body: { ...(serialNumber && { serialNumber }), ...(deviceId && { deviceId }), timeoutSeconds },
      patience: 1000 * (timeoutSeconds + 30),
    });
    if (answer.status === 403) throw refused(`The server refuses: ${reasonOf(answer)}`);
    if (answer.status === 404)
      throw new Ending(exitCodes.failed, `There is no such unit: ${serialNumber ?? deviceId}.`);
    if (answer.status !== 200) throw new UsageError(`The server refuses: ${reasonOf(answer)}`);
    const { verification } = JSON.parse(answer.text) as { verification: Verification };
    const { passed, connected, published } = verification;
    const named = serialNumber ?? verification.deviceId;
    const missing = published ? 'it has published, is not connected now' : 'it does not connect';
    const found = connected ? `it connects${published ? ' and publishes' : ', and has published nothing'}` : missing;
    if (flags.json) process.stdout.write(`${JSON.stringify(verification)}\n`);
    else process.stdout.write(`${named} ${passed ? 'passed' : 'failed'}: ${found}\n`);
    if (!passed) throw new Ending(exitCodes.failed, `${named} has not passed.`);
  });
}
