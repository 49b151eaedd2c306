/** Prints the types of the API, as the console calls it, made from the OpenAPI document of the service itself. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import openapiTS, { astToString } from 'openapi-typescript';
import { readConfig } from '../src/core/config.ts';
import { openLog } from '../src/core/log.ts';
import { openContext } from '../src/process/context.ts';
import { openHttp } from '../src/process/http.ts';

const [target = 'console/api-types.d.ts'] = process.argv.slice(2);
const directory = mkdtempSync(join(tmpdir(), 'slipway-types-'));
try {
  const config = readConfig({ SLIPWAY_DATA_DIR: join(directory, 'data'), SLIPWAY_LOG_LEVEL: 'silent' }, directory);
  const opened = await openContext(config, { log: openLog('silent') });
  const app = await openHttp(opened.ctx);
  const document = JSON.stringify(app.swagger());
  await app.close();
  await opened.close();
  writeFileSync(target, astToString(await openapiTS(document)));
} finally {
  rmSync(directory, { recursive: true, force: true });
}
