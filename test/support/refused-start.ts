/** A start that does not come about. */
import { ConfigError, loadConfig } from '../../src/core/config.ts';
import { startServer } from '../../src/process/server.ts';

/** Why the service does not start on a directory: what the process says behind `slipway cannot start: `, in a tenth of its time. */
export async function refusedStart(directory: string, env: Record<string, string>): Promise<string> {
  const usual = {
    SLIPWAY_HTTP_PORT: '0',
    SLIPWAY_MQTT_PORT: '0',
    SLIPWAY_MQTTS_PORT: '0',
    SLIPWAY_LOG_LEVEL: 'silent',
  };
  try {
    const server = await startServer(loadConfig({ ...usual, SLIPWAY_DATA_DIR: directory, ...env }, directory));
    await server.close();
    return 'it has started';
  } catch (error) {
    return error instanceof ConfigError ? error.message : `an error that nobody expected: ${error}`;
  }
}
