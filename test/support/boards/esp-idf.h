/* What programs take of ESP-IDF 5 and cJSON, as their documentation declares it: enough to check its types. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int esp_err_t;
typedef const char *esp_event_base_t;
typedef void (*esp_event_handler_t)(void *arg, esp_event_base_t base, int32_t id, void *data);
#define ESP_ERROR_CHECK(x) ((void)(x))
#define ESP_EVENT_ANY_ID (-1)
esp_err_t nvs_flash_init(void);
esp_err_t esp_netif_init(void);
esp_err_t esp_event_loop_create_default(void);
esp_err_t esp_event_handler_register(esp_event_base_t base, int32_t id, esp_event_handler_t handler, void *arg);
uint32_t esp_random(void);

extern esp_event_base_t const WIFI_EVENT;
enum { WIFI_EVENT_STA_START = 2, WIFI_EVENT_STA_DISCONNECTED = 5 };
typedef enum { WIFI_MODE_STA = 1 } wifi_mode_t;
typedef enum { WIFI_IF_STA = 0 } wifi_interface_t;
typedef struct {
  int magic;
} wifi_init_config_t;
#define WIFI_INIT_CONFIG_DEFAULT() {.magic = 1}
typedef union {
  struct {
    uint8_t ssid[32];
    uint8_t password[64];
  } sta;
} wifi_config_t;
void *esp_netif_create_default_wifi_sta(void);
esp_err_t esp_wifi_init(const wifi_init_config_t *config);
esp_err_t esp_wifi_set_mode(wifi_mode_t mode);
esp_err_t esp_wifi_set_config(wifi_interface_t interface, wifi_config_t *config);
esp_err_t esp_wifi_start(void);
esp_err_t esp_wifi_connect(void);

typedef struct esp_mqtt_client *esp_mqtt_client_handle_t;
typedef enum { MQTT_EVENT_CONNECTED = 1, MQTT_EVENT_DATA = 6 } esp_mqtt_event_id_t;
typedef struct {
  esp_mqtt_event_id_t event_id;
  esp_mqtt_client_handle_t client;
  char *data;
  int data_len;
} esp_mqtt_event_t, *esp_mqtt_event_handle_t;
typedef struct {
  struct {
    struct {
      const char *uri;
    } address;
    struct {
      esp_err_t (*crt_bundle_attach)(void *conf);
    } verification;
  } broker;
  struct {
    const char *username;
    const char *client_id;
    struct {
      const char *password;
    } authentication;
  } credentials;
} esp_mqtt_client_config_t;
esp_mqtt_client_handle_t esp_mqtt_client_init(const esp_mqtt_client_config_t *config);
esp_err_t esp_mqtt_client_register_event(esp_mqtt_client_handle_t client, esp_mqtt_event_id_t id,
                                         esp_event_handler_t handler, void *arg);
esp_err_t esp_mqtt_client_start(esp_mqtt_client_handle_t client);
esp_err_t esp_crt_bundle_attach(void *conf);
int esp_mqtt_client_publish(esp_mqtt_client_handle_t client, const char *topic, const char *data, int length, int qos,
                            int retain);
int esp_mqtt_client_subscribe(esp_mqtt_client_handle_t client, const char *topic, int qos);
int esp_mqtt_client_enqueue(esp_mqtt_client_handle_t client, const char *topic, const char *data, int length, int qos,
                            int retain, bool store);

typedef uint32_t TickType_t;
#define pdMS_TO_TICKS(ms) ((TickType_t)(ms))
void vTaskDelay(TickType_t ticks);

typedef struct cJSON cJSON;
typedef int cJSON_bool;
cJSON *cJSON_CreateObject(void);
cJSON *cJSON_ParseWithLength(const char *value, size_t length);
cJSON *cJSON_GetObjectItem(const cJSON *object, const char *name);
cJSON *cJSON_Duplicate(const cJSON *item, cJSON_bool recurse);
cJSON *cJSON_AddStringToObject(cJSON *object, const char *name, const char *text);
cJSON_bool cJSON_AddItemToObject(cJSON *object, const char *name, cJSON *item);
char *cJSON_GetStringValue(const cJSON *item);
char *cJSON_PrintUnformatted(const cJSON *item);
void cJSON_free(void *text);
void cJSON_Delete(cJSON *item);
