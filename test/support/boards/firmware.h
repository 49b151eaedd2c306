/* What examples/esp-idf/update.c and enroll.c take of ESP-IDF 5, cJSON and tinycbor, and of the reader's own program. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_ID "id"
#define DEVICE_SECRET "secret"
#define FIRMWARE_VERSION "2.1.0"

typedef int esp_err_t;
#define ESP_OK 0
typedef enum { HTTP_AUTH_TYPE_NONE, HTTP_AUTH_TYPE_BASIC } esp_http_client_auth_type_t;
typedef struct {
  const char *url, *username, *password;
  esp_http_client_auth_type_t auth_type;
  esp_err_t (*crt_bundle_attach)(void *conf);
} esp_http_client_config_t;
typedef struct {
  const esp_http_client_config_t *http_config;
} esp_https_ota_config_t;
esp_err_t esp_crt_bundle_attach(void *conf);
esp_err_t esp_https_ota(const esp_https_ota_config_t *ota_config);
void esp_restart(void) __attribute__((noreturn));

typedef struct cJSON {
  char *valuestring;
} cJSON;
cJSON *cJSON_ParseWithLength(const char *value, size_t buffer_length);
cJSON *cJSON_GetObjectItem(const cJSON *object, const char *name);
cJSON *cJSON_GetArrayItem(const cJSON *array, int index);
char *cJSON_GetStringValue(const cJSON *item);
void cJSON_Delete(cJSON *item);

typedef struct {
  int type;
} CborEncoder;
typedef int CborError;
void cbor_encoder_init(CborEncoder *encoder, uint8_t *buffer, size_t size, int flags);
CborError cbor_encoder_create_map(CborEncoder *parent, CborEncoder *map, size_t length);
CborError cbor_encoder_create_array(CborEncoder *parent, CborEncoder *array, size_t length);
CborError cbor_encoder_close_container(CborEncoder *parent, const CborEncoder *container);
CborError cbor_encode_text_stringz(CborEncoder *encoder, const char *text);
CborError cbor_encode_uint(CborEncoder *encoder, uint64_t value);
CborError cbor_encode_boolean(CborEncoder *encoder, bool value);
size_t cbor_encoder_get_buffer_size(const CborEncoder *encoder, const uint8_t *buffer);

int http_get(const esp_http_client_config_t *config, char *body, size_t size);
int http_post(const esp_http_client_config_t *config, const char *body, char *answer, size_t size);
const char *derived_key(void);
const char *load(const char *name);
void store(const char *name, const char *text);
void report(const char *state, const char *version, int code);
extern void *client;
extern uint8_t buffer[256];
void mqtt_subscribe(void *client, const char *topic, int qos);
void mqtt_publish(void *client, const char *topic, const uint8_t *payload, size_t length, int qos);
