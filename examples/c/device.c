/* A device in C (libmosquitto): publishes readings and answers commands. */
#include <mosquitto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[256];

static const char *setting(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

/* The text of a member at the top of a JSON object, as it stands there; enough for commands, which the service writes. */
static int member(const char *json, const char *name, char *value, size_t size) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *from = strstr(json, key);
  if (!from) return 0;
  from += strlen(key);
  const char *to = from;
  int depth = 0, quoted = 0;
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
  if ((size_t)(to - from) >= size) return 0;
  memcpy(value, from, to - from);
  value[to - from] = 0;
  return 1;
}

static void reply(struct mosquitto *client, const char *id, const char *status, const char *result) {
  char topic[300], answer[2048];
  snprintf(topic, sizeof topic, "%s/_commands/replies", root);
  int length = snprintf(answer, sizeof answer, "{\"id\":%s,\"status\":\"%s\",\"result\":%s}", id, status, result);
  if (length > 0 && length < (int)sizeof answer) mosquitto_publish(client, NULL, topic, length, answer, 1, false);
}

static void on_connect(struct mosquitto *client, void *data, int code) {
  char topic[300];
  (void)data;
  printf("connected: %s\n", mosquitto_connack_string(code));
  snprintf(topic, sizeof topic, "%s/_commands", root);
  mosquitto_subscribe(client, NULL, topic, 1);
}

static void on_message(struct mosquitto *client, void *data, const struct mosquitto_message *message) {
  char json[2048], id[128], name[128], payload[1024] = "null";
  (void)data;
  if (message->payloadlen >= (int)sizeof json) return;
  memcpy(json, message->payload, message->payloadlen);
  json[message->payloadlen] = 0;
  if (!member(json, "id", id, sizeof id) || !member(json, "name", name, sizeof name)) return;
  member(json, "payload", payload, sizeof payload);
  reply(client, id, "accepted", "null");
  if (strcmp(name, "\"echo\"") == 0)
    reply(client, id, "succeeded", payload);
  else
    reply(client, id, "failed", "\"unknown command\"");
}

int main(void) {
  const char *device = setting("SLIPWAY_DEVICE", ""), *ca = setting("SLIPWAY_CA", "");
  char topic[300], reading[64];
  snprintf(root, sizeof root, "slipway/v1/%s/d/%s", setting("SLIPWAY_ACCOUNT", ""), device);
  snprintf(topic, sizeof topic, "%s/readings", root);
  mosquitto_lib_init();
  struct mosquitto *client = mosquitto_new(device, true, NULL);
  if (!client) return 1;
  mosquitto_username_pw_set(client, device, setting("SLIPWAY_SECRET", ""));
  if (*ca) mosquitto_tls_set(client, ca, NULL, NULL, NULL, NULL);
  mosquitto_connect_callback_set(client, on_connect);
  mosquitto_message_callback_set(client, on_message);
  int code = mosquitto_connect(client, setting("SLIPWAY_HOST", "localhost"), atoi(setting("SLIPWAY_PORT", "1883")), 60);
  if (code != MOSQ_ERR_SUCCESS) {
    fprintf(stderr, "%s\n", mosquitto_strerror(code));
    return 1;
  }
  mosquitto_loop_start(client);
  for (;;) {
    /* CSV: time (empty: now), category, number, text. */
    int length = snprintf(reading, sizeof reading, ",temperature,%.2f,", 20 + rand() / (double)RAND_MAX);
    mosquitto_publish(client, NULL, topic, length, reading, 1, false);
    sleep(10);
  }
}
