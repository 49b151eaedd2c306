/** Ready-to-run lines with which a device publishes its first message. The greeting, the API and the console take them from here. */

/** Where a device connects and what it sends. The texts are put into the lines as they are. */
export interface FirstMessage {
  host: string;
  port: number;
  /** Whether `port` speaks TLS. */
  tls: boolean;
  /** Of the HTTP API, without a slash at the end. */
  url: string;
  clientId: string;
  username: string;
  secret: string;
  topic: string;
  payload: string;
}

/** The arguments that every command-line client takes. */
function options({ host, port, clientId, username, secret, topic, payload }: FirstMessage): string {
  return `-h ${host} -p ${port} -i ${clientId} -u ${username} -P ${secret} -q 1 -t ${topic} -m '${payload}'`;
}

// biome-ignore lint/suspicious/noTemplateCurlyInString: a variable of the shell
const trustedByMosquitto = '--cafile "${CURL_CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}"';

export function mosquittoLine(message: FirstMessage): string {
  return `mosquitto_pub ${message.tls ? `${trustedByMosquitto} ` : ''}${options(message)}`;
}

export function npxLine(message: FirstMessage): string {
  return `npx --yes mqtt@5 pub ${message.tls ? '-C mqtts ' : ''}${options(message)}`;
}

function curlLine({ url, username, secret, topic, payload }: FirstMessage): string {
  return `curl -sS -u ${username}:${secret} -H 'Content-Type: text/csv' --data-binary '${payload}' ${url}/api/v1/messaging/publish/${topic}`;
}

/** `single` is the same in paho-mqtt 1, which Debian 12 has, and 2. */
function pythonLines({ host, port, tls, clientId, username, secret, topic, payload }: FirstMessage): string {
  return `# pip install paho-mqtt (Debian: apt install python3-paho-mqtt)
import paho.mqtt.publish as publish

publish.single(
    "${topic}",
    "${payload}",
    qos=1,
    hostname="${host}",
    port=${port},
    client_id="${clientId}",
    auth={"username": "${username}", "password": "${secret}"},
${tls ? '    tls={},\n' : ''})
`;
}

function nodeLines({ host, port, tls, clientId, username, secret, topic, payload }: FirstMessage): string {
  return `// npm install mqtt
import mqtt from 'mqtt';

const client = await mqtt.connectAsync('${tls ? 'mqtts' : 'mqtt'}://${host}:${port}', {
  clientId: '${clientId}',
  username: '${username}',
  password: '${secret}',
});
await client.publishAsync('${topic}', '${payload}', { qos: 1 });
await client.endAsync();
`;
}

function arduinoLines({ host, port, tls, clientId, username, secret, topic, payload }: FirstMessage): string {
  return `// Library: PubSubClient
#include <WiFi.h>
${tls ? '#include <WiFiClientSecure.h>\n' : ''}#include <PubSubClient.h>

${tls ? 'WiFiClientSecure' : 'WiFiClient'} network;
PubSubClient client(network);

void setup() {
  WiFi.begin("YOUR_WIFI", "YOUR_WIFI_PASSWORD");
  while (WiFi.status() != WL_CONNECTED) delay(200);
${tls ? '  network.setCACert(YOUR_CA_CERTIFICATE);\n' : ''}  client.setServer("${host}", ${port});
}

void loop() {
  if (!client.connected() && !client.connect("${clientId}", "${username}", "${secret}")) return delay(5000);
  client.loop();
  client.publish("${topic}", "${payload}");
  delay(10000);
}
`;
}

function espIdfLines({ host, port, tls, clientId, username, secret, topic, payload }: FirstMessage): string {
  return `#include "mqtt_client.h"
${tls ? '#include "esp_crt_bundle.h"\n' : ''}
static void on_connected(void *arg, esp_event_base_t base, int32_t id, void *data) {
  esp_mqtt_event_handle_t event = data;
  esp_mqtt_client_publish(event->client, "${topic}", "${payload}", 0, 1, 0);
}

void connect_to_slipway(void) {
  const esp_mqtt_client_config_t config = {
    .broker.address.uri = "${tls ? 'mqtts' : 'mqtt'}://${host}:${port}",
${tls ? '    .broker.verification.crt_bundle_attach = esp_crt_bundle_attach,\n' : ''}    .credentials.client_id = "${clientId}",
    .credentials.username = "${username}",
    .credentials.authentication.password = "${secret}",
  };
  esp_mqtt_client_handle_t client = esp_mqtt_client_init(&config);
  esp_mqtt_client_register_event(client, MQTT_EVENT_CONNECTED, on_connected, NULL);
  esp_mqtt_client_start(client);
}
`;
}

/** One word of a shell, whatever is in it. */
function toWord(text: string): string {
  return /^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** A text as programming languages have it between quotes of either kind. */
function toLiteral(text: string): string {
  return text.replaceAll(/[\\"']/g, String.raw`\$&`);
}

/** The message with each text that comes from outside in another form; the payload is our own. */
function withTexts(message: FirstMessage, form: (text: string) => string): FirstMessage {
  const { host, url, clientId, username, secret, topic } = message;
  const texts = Object.entries({ host, url, clientId, username, secret, topic });
  return { ...message, ...Object.fromEntries(texts.map(([name, text]) => [name, form(text)])) };
}

/** The same first message, ready for each tool. One person names a channel, and others run the lines. */
export function connectLines(message: FirstMessage) {
  const literal = withTexts(message, toLiteral);
  const path = encodeURI(message.topic).replaceAll('?', '%3F');
  return {
    mosquitto: mosquittoLine(withTexts(message, toWord)),
    python: pythonLines(literal),
    node: nodeLines(literal),
    arduino: arduinoLines(literal),
    espIdf: espIdfLines(literal),
    curl: curlLine(withTexts({ ...message, topic: path }, toWord)),
  };
}
