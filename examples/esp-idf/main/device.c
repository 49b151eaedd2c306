/* A device with ESP-IDF 5: publishes readings and answers commands. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cJSON.h"
#include "esp_event.h"
#include "esp_netif.h"
#include "esp_random.h"
#include "esp_wifi.h"
#include "freertos/FreeRTOS.h"
#include "freertos/task.h"
#include "mqtt_client.h"
#include "nvs_flash.h"

#define WIFI "your network"
#define WIFI_PASSWORD "its password"
#define BROKER "mqtt://192.168.1.10:1883" /* mqtts:// with .broker.verification.certificate for TLS */
#define DEVICE "device id"
#define SECRET "secret"
#define ROOT "slipway/v1/" "account id" "/d/" DEVICE

static void reply(esp_mqtt_client_handle_t client, const cJSON *command, const char *status, const cJSON *result) {
  cJSON *answer = cJSON_CreateObject();
  cJSON_AddItemToObject(answer, "id", cJSON_Duplicate(cJSON_GetObjectItem(command, "id"), true));
  cJSON_AddStringToObject(answer, "status", status);
  if (result) cJSON_AddItemToObject(answer, "result", cJSON_Duplicate(result, true));
  char *text = cJSON_PrintUnformatted(answer);
  esp_mqtt_client_enqueue(client, ROOT "/_commands/replies", text, 0, 1, 0, true);
  cJSON_free(text);
  cJSON_Delete(answer);
}

static void on_mqtt(void *arg, esp_event_base_t base, int32_t id, void *data) {
  esp_mqtt_event_handle_t event = data;
  if (id == MQTT_EVENT_CONNECTED) esp_mqtt_client_subscribe(event->client, ROOT "/_commands", 1);
  if (id != MQTT_EVENT_DATA) return;
  cJSON *command = cJSON_ParseWithLength(event->data, event->data_len);
  const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(command, "name"));
  if (name) {
    reply(event->client, command, "accepted", NULL);
    if (strcmp(name, "echo") == 0)
      reply(event->client, command, "succeeded", cJSON_GetObjectItem(command, "payload"));
    else
      reply(event->client, command, "failed", NULL);
  }
  cJSON_Delete(command);
}

static void on_wifi(void *arg, esp_event_base_t base, int32_t id, void *data) {
  if (id == WIFI_EVENT_STA_START || id == WIFI_EVENT_STA_DISCONNECTED) esp_wifi_connect();
}

static void join(void) {
  ESP_ERROR_CHECK(nvs_flash_init());
  ESP_ERROR_CHECK(esp_netif_init());
  ESP_ERROR_CHECK(esp_event_loop_create_default());
  esp_netif_create_default_wifi_sta();
  wifi_init_config_t init = WIFI_INIT_CONFIG_DEFAULT();
  ESP_ERROR_CHECK(esp_wifi_init(&init));
  ESP_ERROR_CHECK(esp_event_handler_register(WIFI_EVENT, ESP_EVENT_ANY_ID, on_wifi, NULL));
  wifi_config_t config = {.sta = {.ssid = WIFI, .password = WIFI_PASSWORD}};
  ESP_ERROR_CHECK(esp_wifi_set_mode(WIFI_MODE_STA));
  ESP_ERROR_CHECK(esp_wifi_set_config(WIFI_IF_STA, &config));
  ESP_ERROR_CHECK(esp_wifi_start());
}

void app_main(void) {
  join();
  const esp_mqtt_client_config_t config = {
      .broker.address.uri = BROKER,
      .credentials.client_id = DEVICE,
      .credentials.username = DEVICE,
      .credentials.authentication.password = SECRET,
  };
  esp_mqtt_client_handle_t client = esp_mqtt_client_init(&config);
  esp_mqtt_client_register_event(client, ESP_EVENT_ANY_ID, on_mqtt, NULL);
  esp_mqtt_client_start(client);
  for (;;) {
    char reading[48];
    /* CSV: time (empty: now), category, number, text. */
    snprintf(reading, sizeof reading, ",temperature,%.2f,", 20 + esp_random() % 100 / 100.0);
    esp_mqtt_client_enqueue(client, ROOT "/readings", reading, 0, 1, 0, true);
    vTaskDelay(pdMS_TO_TICKS(10000));
  }
}
