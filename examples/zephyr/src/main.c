/* A device with Zephyr (its MQTT library, TLS): publishes readings and answers commands. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <zephyr/kernel.h>
#include <zephyr/net/mqtt.h>
#include <zephyr/net/socket.h>
#include <zephyr/net/tls_credentials.h>
#include <zephyr/random/random.h>

#define HOST "slipway.example.com"
#define PORT "8883"
#define DEVICE "device id"
#define SECRET "secret"
#define ROOT "slipway/v1/" "account id" "/d/" DEVICE
#define CA_TAG 1

static const uint8_t ca[] = {
#include "ca.der.inc"
};
static const sec_tag_t tags[] = {CA_TAG};
static struct mqtt_client client;
static struct mqtt_utf8 user = {(const uint8_t *)DEVICE, sizeof(DEVICE) - 1};
static struct mqtt_utf8 password = {(const uint8_t *)SECRET, sizeof(SECRET) - 1};
static struct sockaddr_storage broker;
static uint8_t received[1024], sent[1024];
static bool connected;

/* The text of a member at the top of a JSON object, as it stands there; enough for commands, which the service writes. */
static bool member(const char *json, const char *name, char *value, size_t size) {
  char key[32];
  snprintf(key, sizeof(key), "\"%s\":", name);
  const char *from = strstr(json, key);
  if (!from) return false;
  from += strlen(key);
  const char *to = from;
  int depth = 0;
  bool quoted = false;
  for (; *to; to++) {
    if (quoted && *to == '\\' && to[1]) {
      to++;
      continue;
    }
    if (*to == '"') quoted = !quoted;
    if (quoted) continue;
    if (*to == '{' || *to == '[') depth++;
    if ((*to == '}' || *to == ']') && depth-- == 0) break;
    if (*to == ',' && depth == 0) break;
  }
  if ((size_t)(to - from) >= size) return false;
  memcpy(value, from, to - from);
  value[to - from] = 0;
  return true;
}

static int publish(const char *topic, const char *text) {
  static uint16_t last_id;
  last_id = last_id == UINT16_MAX ? 1 : last_id + 1;
  const struct mqtt_publish_param message = {
      .message.topic = {.topic = {(const uint8_t *)topic, strlen(topic)}, .qos = MQTT_QOS_1_AT_LEAST_ONCE},
      .message.payload = {(uint8_t *)text, strlen(text)},
      .message_id = last_id,
  };
  return mqtt_publish(&client, &message);
}

static void reply(const char *id, const char *status, const char *result) {
  static char answer[1024];
  int length = snprintf(answer, sizeof(answer), "{\"id\":%s,\"status\":\"%s\",\"result\":%s}", id, status, result);
  if (length > 0 && length < (int)sizeof(answer)) publish(ROOT "/_commands/replies", answer);
}

static void on_command(const char *json) {
  static char payload[768];
  char id[64], name[64];
  if (!member(json, "id", id, sizeof(id)) || !member(json, "name", name, sizeof(name))) return;
  if (!member(json, "payload", payload, sizeof(payload))) strcpy(payload, "null");
  reply(id, "accepted", "null");
  if (strcmp(name, "\"echo\"") == 0)
    reply(id, "succeeded", payload);
  else
    reply(id, "failed", "\"unknown command\"");
}

static void on_event(struct mqtt_client *client, const struct mqtt_evt *event) {
  static char json[1024];
  struct mqtt_topic topic = {.topic = MQTT_UTF8_LITERAL(ROOT "/_commands"), .qos = MQTT_QOS_1_AT_LEAST_ONCE};
  const struct mqtt_subscription_list list = {.list = &topic, .list_count = 1, .message_id = 1};

  if (event->type == MQTT_EVT_DISCONNECT) connected = false;
  if (event->type == MQTT_EVT_CONNACK && event->result == 0) {
    connected = true;
    mqtt_subscribe(client, &list);
  }
  if (event->type != MQTT_EVT_PUBLISH) return;
  const struct mqtt_publish_param *message = &event->param.publish;
  const uint32_t length = message->message.payload.len;
  const struct mqtt_puback_param answer = {.message_id = message->message_id};
  /* What is not read would be taken for the next packet. */
  if (length >= sizeof(json) || mqtt_readall_publish_payload(client, (uint8_t *)json, length) != 0) {
    mqtt_abort(client);
    return;
  }
  json[length] = 0;
  if (message->message.topic.qos == MQTT_QOS_1_AT_LEAST_ONCE) mqtt_publish_qos1_ack(client, &answer);
  on_command(json);
}

static int open_connection(void) {
  const struct zsock_addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  struct zsock_addrinfo *found;
  int code = zsock_getaddrinfo(HOST, PORT, &hints, &found);
  if (code != 0) return code;
  memcpy(&broker, found->ai_addr, found->ai_addrlen);
  zsock_freeaddrinfo(found);
  mqtt_client_init(&client);
  client.broker = &broker;
  client.evt_cb = on_event;
  client.client_id = user;
  client.user_name = &user;
  client.password = &password;
  client.protocol_version = MQTT_VERSION_3_1_1;
  client.rx_buf = received;
  client.rx_buf_size = sizeof(received);
  client.tx_buf = sent;
  client.tx_buf_size = sizeof(sent);
  client.transport.type = MQTT_TRANSPORT_SECURE;
  client.transport.tls.config = (struct mqtt_sec_config){
      .peer_verify = TLS_PEER_VERIFY_REQUIRED,
      .sec_tag_list = tags,
      .sec_tag_count = ARRAY_SIZE(tags),
      .hostname = HOST,
  };
  return mqtt_connect(&client);
}

/* Until the connection ends: every event of the library comes from mqtt_input. */
static int work(void) {
  struct zsock_pollfd socket = {.fd = client.transport.tls.sock, .events = ZSOCK_POLLIN};
  const int64_t began = k_uptime_get();
  int64_t last = began - 10000;
  char reading[48];
  int code = 0;
  while (code == 0 && (connected || k_uptime_get() - began < 10000)) {
    if (zsock_poll(&socket, 1, 500) > 0) code = mqtt_input(&client);
    if (code == 0) code = mqtt_live(&client);
    /* Nothing had to be sent. */
    if (code == -EAGAIN) code = 0;
    if (code != 0 || !connected || k_uptime_get() - last < 10000) continue;
    last = k_uptime_get();
    /* CSV: time (empty: now), category, number, text. */
    snprintf(reading, sizeof(reading), ",temperature,20.%02u,", (unsigned int)(sys_rand32_get() % 100));
    code = publish(ROOT "/readings", reading);
  }
  return code;
}

int main(void) {
  tls_credential_add(CA_TAG, TLS_CREDENTIAL_CA_CERTIFICATE, ca, sizeof(ca));
  for (;;) {
    connected = false;
    int code = open_connection();
    if (code == 0) {
      code = work();
      mqtt_abort(&client);
    }
    printk("again in 5 seconds: %d\n", code);
    k_sleep(K_SECONDS(5));
  }
}
