/** What the server says on standard output when it listens. */
import type { Server } from './server.js';

/** The addresses; on the very first start also the admin's password and three commands to paste. */
export function greeting({ url, mqttPort, ctx, firstAccount }: Server): string {
  const { config, broker } = ctx;
  const lines = ['', `Slipway is listening.  API ${url}/api/v1   documentation ${url}/docs`];
  lines.push(`MQTT ${config.host}:${mqttPort}   MQTT over WebSocket ${url.replace('http', 'ws')}/mqtt`);
  if (broker.addresses.mqtts !== undefined) lines.push(`MQTT over TLS ${config.host}:${broker.addresses.mqtts}`);
  if (!firstAccount) return `${lines.join('\n')}\n`;

  const { accountId, adminEmail, adminPassword } = firstAccount;
  const password = config.firstAccount.adminPassword === undefined ? adminPassword : '<SLIPWAY_ADMIN_PASSWORD>';
  const api = `${url}/api/v1`;
  const json = `-H 'Content-Type: application/json'`;
  const auth = `-H "Authorization: Bearer $TOKEN" ${json}`;
  const pick = (path: string) => `node -pe 'JSON.parse(fs.readFileSync(0))${path}'`;
  lines.push(
    '',
    'This is the first start. The first account is made; its password is shown now and never again:',
    '',
    `  account   ${accountId}`,
    `  e-mail    ${adminEmail}`,
    `  password  ${password}`,
    '',
    'Paste these in another terminal.',
    '',
    '1. Log in:',
    '',
    `ACCOUNT=${accountId}`,
    `TOKEN=$(curl -s ${api}/auth/login-user ${json} -d '${JSON.stringify({ accountId, emailAddress: adminEmail, password })}' | ${pick('.jwt')})`,
    '',
    '2. Make a channel whose data is kept, a device, and its credential:',
    '',
    `TEMPLATE=$(curl -s "${api}/devices/templates?accountId=$ACCOUNT&default=true" ${auth} | ${pick('.deviceTemplates.results[0].id')})`,
    `curl -s ${api}/channels/templates ${auth} -d '{"accountId":"'$ACCOUNT'","entityId":"'$TEMPLATE'","entityType":"deviceTemplate","name":"readings","persistenceType":"timeSeries"}'; echo`,
    `DEVICE=$(curl -s ${api}/devices ${auth} -d '{"accountId":"'$ACCOUNT'","serialNumber":"SN-0001"}' | ${pick('.device.id')})`,
    `SECRET=$(curl -s ${api}/access/mqtt-credentials ${auth} -d '{"accountId":"'$ACCOUNT'","entityId":"'$DEVICE'","entityType":"device"}' | ${pick('.mqttCredential.secret')})`,
    '',
    '3. Publish, with either of these, and read it back:',
    '',
    `TOPIC=${config.topicRoot}/$ACCOUNT/d/$DEVICE/readings`,
    `mosquitto_pub -h ${config.host} -p ${mqttPort} -i my-device -u $DEVICE -P $SECRET -q 1 -t $TOPIC -m ',temperature,21.5,'`,
    `npx mqtt pub -h ${config.host} -p ${mqttPort} -i my-device -u $DEVICE -P $SECRET -q 1 -t $TOPIC -m ',temperature,21.5,'`,
    `curl -s ${url}/api/v4/data/$TOPIC ${auth}; echo`,
  );
  return `${lines.join('\n')}\n`;
}
