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

/** The topic is sent as bytes: umqtt sends text with its number of characters. */
function microPythonLines({ host, port, tls, clientId, username, secret, topic, payload }: FirstMessage): string {
  return `# mpremote mip install umqtt.simple
${tls ? '# mpremote cp ca.pem :        (the CA certificate)\n' : ''}import network, ${tls ? 'ntptime, ssl, ' : ''}time
from umqtt.simple import MQTTClient

wifi = network.WLAN(network.STA_IF)
wifi.active(True)
wifi.connect("YOUR_WIFI", "YOUR_WIFI_PASSWORD")
while not wifi.isconnected():
    time.sleep_ms(200)
${tls ? trustedByMicroPython : ''}client = MQTTClient("${clientId}", "${host}", ${port}, "${username}", "${secret}"${tls ? ', ssl=context' : ''})
client.connect()
client.publish("${topic}".encode(), "${payload}", qos=1)
client.disconnect()
`;
}

const trustedByMicroPython = `ntptime.settime()  # a certificate is valid from one time to another
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.verify_mode = ssl.CERT_REQUIRED
context.load_verify_locations(cafile="ca.pem")
`;

function zephyrLines({ host, port, tls, clientId, username, secret, topic, payload }: FirstMessage): string {
  return `/* src/main.c; prj.conf${tls ? ', and CMakeLists.txt for ca.der,' : ''} as in examples/zephyr */
#include <string.h>
#include <zephyr/kernel.h>
#include <zephyr/net/mqtt.h>
#include <zephyr/net/socket.h>
${tls ? trustedByZephyr : ''}
static struct mqtt_utf8 user = MQTT_UTF8_LITERAL("${username}"), password = MQTT_UTF8_LITERAL("${secret}");
static struct mqtt_client client;
static struct sockaddr_storage broker;
static uint8_t received[256], sent[1024];

static void on_event(struct mqtt_client *client, const struct mqtt_evt *event) {
  const struct mqtt_publish_param message = {
      .message.topic = {.topic = MQTT_UTF8_LITERAL("${topic}"), .qos = MQTT_QOS_1_AT_LEAST_ONCE},
      .message.payload = {(uint8_t *)"${payload}", sizeof("${payload}") - 1},
      .message_id = 1,
  };
  if (event->type == MQTT_EVT_CONNACK && event->result == 0) mqtt_publish(client, &message);
  if (event->type == MQTT_EVT_PUBACK) mqtt_disconnect(client, NULL);
}

int main(void) {
  const struct zsock_addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  struct zsock_addrinfo *found;
  if (zsock_getaddrinfo("${host}", "${port}", &hints, &found) != 0) return 1;
  memcpy(&broker, found->ai_addr, found->ai_addrlen);
  zsock_freeaddrinfo(found);
  mqtt_client_init(&client);
  client.broker = &broker;
  client.evt_cb = on_event;
  client.client_id = MQTT_UTF8_LITERAL("${clientId}");
  client.user_name = &user;
  client.password = &password;
  client.rx_buf = received;
  client.rx_buf_size = sizeof(received);
  client.tx_buf = sent;
  client.tx_buf_size = sizeof(sent);
${tls ? zephyrTls(host) : ''}  for (int code = mqtt_connect(&client); code == 0; code = mqtt_input(&client)) {
    struct zsock_pollfd socket = {.fd = client.transport.${tls ? 'tls' : 'tcp'}.sock, .events = ZSOCK_POLLIN};
    zsock_poll(&socket, 1, 10000);
  }
  return 0;
}
`;
}

const trustedByZephyr = `#include <zephyr/net/tls_credentials.h>

static const sec_tag_t tags[] = {1};
static const uint8_t ca[] = {
#include "ca.der.inc"
};
`;

function zephyrTls(host: string): string {
  return `  tls_credential_add(tags[0], TLS_CREDENTIAL_CA_CERTIFICATE, ca, sizeof(ca));
  client.transport.type = MQTT_TRANSPORT_SECURE;
  client.transport.tls.config = (struct mqtt_sec_config){
      .peer_verify = TLS_PEER_VERIFY_REQUIRED, .sec_tag_list = tags, .sec_tag_count = 1, .hostname = "${host}"};
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
    microPython: microPythonLines(literal),
    zephyr: zephyrLines(literal),
    curl: curlLine(withTexts({ ...message, topic: path }, toWord)),
  };
}
