/* Request and response with MQTT 5 (libmosquitto): `request answer` is the device, `request ask` asks it. */
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char requests[300], responses[300], correlation[32];
static int asks;

static const char *setting(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

static void on_connect(struct mosquitto *client, void *data, int code, int flags, const mosquitto_property *told) {
  (void)data, (void)flags, (void)told;
  if (code >= 0x80) {
    fprintf(stderr, "refused: %s\n", mosquitto_reason_string(code));
    exit(1);
  }
  mosquitto_subscribe_v5(client, NULL, asks ? responses : requests, 1, 0, NULL);
}

static void on_subscribe(struct mosquitto *client, void *data, int id, int count, const int *codes,
                         const mosquitto_property *told) {
  static const char request[] = "{\"read\":\"temperature\"}";
  mosquitto_property *properties = NULL;
  (void)data, (void)id, (void)count, (void)told;
  if (codes[0] >= 0x80) {
    fprintf(stderr, "refused: %s\n", mosquitto_reason_string(codes[0]));
    exit(1);
  }
  puts("ready");
  fflush(stdout);
  if (!asks) return;
  mosquitto_property_add_string(&properties, MQTT_PROP_CONTENT_TYPE, "application/json");
  mosquitto_property_add_string(&properties, MQTT_PROP_RESPONSE_TOPIC, responses);
  mosquitto_property_add_binary(&properties, MQTT_PROP_CORRELATION_DATA, correlation, strlen(correlation));
  mosquitto_property_add_int32(&properties, MQTT_PROP_MESSAGE_EXPIRY_INTERVAL, 60);
  mosquitto_publish_v5(client, NULL, requests, sizeof request - 1, request, 1, false, properties);
  mosquitto_property_free_all(&properties);
}

static void answer(struct mosquitto *client, const mosquitto_property *request) {
  char *topic = NULL, value[64];
  void *data = NULL;
  uint16_t length = 0;
  mosquitto_property *properties = NULL;
  if (!mosquitto_property_read_string(request, MQTT_PROP_RESPONSE_TOPIC, &topic, false)) return;
  mosquitto_property_add_string(&properties, MQTT_PROP_CONTENT_TYPE, "application/json");
  if (mosquitto_property_read_binary(request, MQTT_PROP_CORRELATION_DATA, &data, &length, false))
    mosquitto_property_add_binary(&properties, MQTT_PROP_CORRELATION_DATA, data, length);
  int size = snprintf(value, sizeof value, "{\"temperature\":%.2f}", 20 + rand() / (double)RAND_MAX);
  mosquitto_publish_v5(client, NULL, topic, size, value, 1, false, properties);
  mosquitto_property_free_all(&properties);
  free(topic);
  free(data);
}

static void take(struct mosquitto *client, const struct mosquitto_message *message, const mosquitto_property *response) {
  void *data = NULL;
  uint16_t length = 0;
  int is_mine = mosquitto_property_read_binary(response, MQTT_PROP_CORRELATION_DATA, &data, &length, false) != NULL &&
                length == strlen(correlation) && memcmp(data, correlation, length) == 0;
  free(data);
  /* Others are the responses to other requests. */
  if (!is_mine) return;
  printf("%.*s\n", message->payloadlen, (char *)message->payload);
  fflush(stdout);
  mosquitto_disconnect_v5(client, 0, NULL);
}

static void on_message(struct mosquitto *client, void *data, const struct mosquitto_message *message,
                       const mosquitto_property *properties) {
  (void)data;
  if (asks)
    take(client, message, properties);
  else
    answer(client, properties);
}

int main(int count, char **arguments) {
  const char *device = setting("SLIPWAY_DEVICE", ""), *account = setting("SLIPWAY_ACCOUNT", "");
  const char *ca = setting("SLIPWAY_CA", "");
  char id[64];
  mosquitto_property *session = NULL;
  asks = count > 1 && strcmp(arguments[1], "ask") == 0;
  snprintf(requests, sizeof requests, "slipway/v1/%s/d/%s/requests", account, device);
  snprintf(responses, sizeof responses, "slipway/v1/%s/d/%s/responses", account, device);
  srand(time(NULL));
  snprintf(correlation, sizeof correlation, "%ld-%d", (long)time(NULL), rand());
  snprintf(id, sizeof id, "%s-requests", device);
  mosquitto_lib_init();
  struct mosquitto *client = mosquitto_new(asks ? NULL : id, asks, NULL);
  if (!client) return 1;
  mosquitto_int_option(client, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
  if (asks)
    mosquitto_username_pw_set(client, "Auth:JWT", setting("SLIPWAY_TOKEN", ""));
  else
    mosquitto_username_pw_set(client, device, setting("SLIPWAY_SECRET", ""));
  if (*ca) mosquitto_tls_set(client, ca, NULL, NULL, NULL, NULL);
  mosquitto_connect_v5_callback_set(client, on_connect);
  mosquitto_subscribe_v5_callback_set(client, on_subscribe);
  mosquitto_message_v5_callback_set(client, on_message);
  /* Requests wait for an hour while the device is away. */
  if (!asks) mosquitto_property_add_int32(&session, MQTT_PROP_SESSION_EXPIRY_INTERVAL, 3600);
  int port = atoi(setting("SLIPWAY_PORT", "1883"));
  int code = mosquitto_connect_bind_v5(client, setting("SLIPWAY_HOST", "localhost"), port, 60, NULL, session);
  mosquitto_property_free_all(&session);
  if (code == MOSQ_ERR_SUCCESS) code = mosquitto_loop_forever(client, -1, 1);
  if (code == MOSQ_ERR_SUCCESS) return 0;
  fprintf(stderr, "%s\n", mosquitto_strerror(code));
  return 1;
}
