/* A device that enrolls over MQTT with its derived key: gcc enroll.c -lmosquitto -lcrypto. The line burns in the key of its
   serial number; here it is made from the group key. */
#include <mosquitto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *env(const char *name) {
    const char *value = getenv(name);
    if (!value) {
        fprintf(stderr, "%s is not set\n", name);
        exit(2);
    }
    return value;
}

/* base64url(HMAC-SHA256(groupKey, serialNumber)), without padding: 43 characters. */
static void derive(const char *group_key, const char *serial, char key[48]) {
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    HMAC(EVP_sha256(), group_key, (int)strlen(group_key), (const unsigned char *)serial, strlen(serial), mac, &length);
    EVP_EncodeBlock((unsigned char *)key, mac, (int)length);
    for (char *c = key; *c; c++) *c = *c == '+' ? '-' : *c == '/' ? '_' : *c == '=' ? '\0' : *c;
}

static void on_connect(struct mosquitto *client, void *data, int code) {
    (void)data;
    if (code) {
        fprintf(stderr, "refused: %s\n", mosquitto_connack_string(code));
        exit(1);
    }
    mosquitto_subscribe(client, NULL, "slipway/v1/enroll/+", 1);
}

static void on_subscribe(struct mosquitto *client, void *data, int id, int count, const int *qos) {
    (void)data, (void)id, (void)count, (void)qos;
    const char *request = "{\"firmwareVersion\":\"1.4.2\"}";
    mosquitto_publish(client, NULL, "slipway/v1/enroll", (int)strlen(request), request, 1, false);
}

/* The answer, to be kept where it survives a restart. The acknowledgement of this message ends the connection. */
static void on_message(struct mosquitto *client, void *data, const struct mosquitto_message *message) {
    (void)client;
    int *result = data;
    *result = strstr(message->topic, "/accepted") ? 0 : 1;
    fprintf(*result ? stderr : stdout, "%.*s\n", message->payloadlen, (const char *)message->payload);
}

int main(void) {
    char key[48], username[400];
    int result = 1;
    derive(env("SLIPWAY_GROUP_KEY"), env("SLIPWAY_SERIAL"), key);
    snprintf(username, sizeof username, "enroll/%s/%s", env("SLIPWAY_GROUP"), env("SLIPWAY_SERIAL"));
    mosquitto_lib_init();
    struct mosquitto *client = mosquitto_new(NULL, true, &result);
    mosquitto_username_pw_set(client, username, key);
    if (getenv("SLIPWAY_CA")) mosquitto_tls_set(client, getenv("SLIPWAY_CA"), NULL, NULL, NULL, NULL);
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_subscribe_callback_set(client, on_subscribe);
    mosquitto_message_callback_set(client, on_message);
    if (mosquitto_connect(client, env("SLIPWAY_HOST"), atoi(env("SLIPWAY_PORT")), 30)) return 3;
    while (mosquitto_loop(client, 1000, 1) == MOSQ_ERR_SUCCESS) {
    }
    mosquitto_destroy(client);
    return result;
}
