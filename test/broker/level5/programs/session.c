/* libmosquitto over TLS: `keep` begins a stored session, `leave` publishes and dies with a delayed will, `back` hears both. */
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *topic, *role;

static void fail(const char *what, int code) {
  fprintf(stderr, "%s: %d\n", what, code);
  exit(1);
}

static mosquitto_property *said(void) {
  mosquitto_property *properties = NULL;
  mosquitto_property_add_string(&properties, MQTT_PROP_CONTENT_TYPE, "text/plain");
  mosquitto_property_add_string(&properties, MQTT_PROP_RESPONSE_TOPIC, topic);
  mosquitto_property_add_binary(&properties, MQTT_PROP_CORRELATION_DATA, "c", 1);
  mosquitto_property_add_string_pair(&properties, MQTT_PROP_USER_PROPERTY, "a", "1");
  return properties;
}

static void on_connect(struct mosquitto *client, void *data, int code, int flags, const mosquitto_property *told) {
  (void)data, (void)told;
  if (code != 0) fail("CONNACK", code);
  if (strcmp(role, "keep") == 0) mosquitto_subscribe_v5(client, NULL, topic, 2, 0, NULL);
  if (strcmp(role, "back") == 0) printf("session %d\n", flags & 1);
  if (strcmp(role, "leave") != 0) return;
  mosquitto_property *properties = said();
  mosquitto_publish_v5(client, NULL, topic, 5, "while", 2, false, properties);
  mosquitto_property_free_all(&properties);
}

static void on_subscribe(struct mosquitto *client, void *data, int id, int count, const int *codes,
                         const mosquitto_property *told) {
  (void)data, (void)id, (void)count, (void)told;
  if (codes[0] != 2) fail("SUBACK", codes[0]);
  mosquitto_disconnect_v5(client, 0, NULL);
}

static void on_publish(struct mosquitto *client, void *data, int id, int code, const mosquitto_property *told) {
  (void)client, (void)data, (void)id, (void)told;
  if (code != 0) fail("PUBCOMP", code);
  /* Without DISCONNECT. */
  _exit(0);
}

static void on_message(struct mosquitto *client, void *data, const struct mosquitto_message *message,
                       const mosquitto_property *properties) {
  char *type = NULL, *response = NULL, *name = NULL, *value = NULL;
  void *correlation = NULL;
  uint16_t length = 0;
  (void)data;
  mosquitto_property_read_string(properties, MQTT_PROP_CONTENT_TYPE, &type, false);
  mosquitto_property_read_string(properties, MQTT_PROP_RESPONSE_TOPIC, &response, false);
  mosquitto_property_read_binary(properties, MQTT_PROP_CORRELATION_DATA, &correlation, &length, false);
  mosquitto_property_read_string_pair(properties, MQTT_PROP_USER_PROPERTY, &name, &value, false);
  printf("%d %.*s %s %.*s %s %s=%s\n", message->qos, message->payloadlen, (char *)message->payload, type, length,
         (char *)correlation, response, name, value);
  if (memcmp(message->payload, "gone", 4) == 0) mosquitto_disconnect_v5(client, 0, NULL);
}

int main(int count, char **arguments) {
  if (count != 7) return 2;
  topic = arguments[5];
  role = arguments[6];
  int leaves = strcmp(role, "leave") == 0;
  mosquitto_property *session = NULL, *will = said();
  mosquitto_lib_init();
  struct mosquitto *client = mosquitto_new(leaves ? "leaving" : "kept", leaves, NULL);
  mosquitto_int_option(client, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
  mosquitto_tls_set(client, arguments[2], NULL, NULL, NULL, NULL);
  mosquitto_username_pw_set(client, arguments[3], arguments[4]);
  mosquitto_property_add_int32(&session, MQTT_PROP_SESSION_EXPIRY_INTERVAL, 60);
  mosquitto_property_add_int32(&will, MQTT_PROP_WILL_DELAY_INTERVAL, 1);
  if (leaves) mosquitto_will_set_v5(client, topic, 4, "gone", 1, false, will);
  mosquitto_connect_v5_callback_set(client, on_connect);
  mosquitto_subscribe_v5_callback_set(client, on_subscribe);
  mosquitto_publish_v5_callback_set(client, on_publish);
  mosquitto_message_v5_callback_set(client, on_message);
  int code = mosquitto_connect_bind_v5(client, "127.0.0.1", atoi(arguments[1]), 60, NULL, session);
  if (code == MOSQ_ERR_SUCCESS) code = mosquitto_loop_forever(client, -1, 1);
  if (code != MOSQ_ERR_SUCCESS) fail(mosquitto_strerror(code), code);
  return 0;
}
