/* Parts of a program that updates its firmware: over HTTP, or with CBOR on control topics. your_program.h has the rest of it:
   http_get and report are a request each, client and buffer are those of its MQTT connection. */
#include "cJSON.h"
#include "cbor.h"
#include "esp_http_client.h"
#include "esp_https_ota.h"
#include "your_program.h"

/* Asks for an offer and installs it. Report "succeeded" only after the new firmware has started. */
void update(void) {
    esp_http_client_config_t ask = {
        .url = "https://things.example.com/api/v1/firmware/offer",
        .username = DEVICE_ID, .password = DEVICE_SECRET, .auth_type = HTTP_AUTH_TYPE_BASIC,
        .crt_bundle_attach = esp_crt_bundle_attach,
    };
    char body[4096];
    int length = http_get(&ask, body, sizeof body - 1);
    cJSON *offer = cJSON_ParseWithLength(body, length);
    cJSON *file = cJSON_GetArrayItem(cJSON_GetObjectItem(offer, "files"), 0);
    if (file) {
        const char *version = cJSON_GetObjectItem(offer, "firmwareVersion")->valuestring;
        esp_http_client_config_t get = {
            .url = cJSON_GetObjectItem(file, "url")->valuestring, .crt_bundle_attach = esp_crt_bundle_attach,
        };
        esp_https_ota_config_t ota = {.http_config = &get};
        report("downloading", version, 0);
        if (esp_https_ota(&ota) == ESP_OK) {
            report("installing", version, 0);
            esp_restart();   /* after the restart: report("succeeded", version, 0) */
        } else {
            report("failed", version, -1);
        }
    }
}

/* Says what is installed. Call it after CONNACK; the chunks of the file come on the same topic. */
void announce(void) {
    mqtt_subscribe(client, "slipway/ctrl/v1/" DEVICE_ID "/cln", 1);
    CborEncoder encoder, map, list, file;
    cbor_encoder_init(&encoder, buffer, sizeof buffer, 0);
    cbor_encoder_create_map(&encoder, &map, 4);
    cbor_encode_text_stringz(&map, "msgtype"); cbor_encode_uint(&map, 0);
    cbor_encode_text_stringz(&map, "msgver");  cbor_encode_uint(&map, 1);
    cbor_encode_text_stringz(&map, "L");       cbor_encode_boolean(&map, false);
    cbor_encode_text_stringz(&map, "list");
    cbor_encoder_create_array(&map, &list, 1);
    cbor_encoder_create_map(&list, &file, 2);
    cbor_encode_text_stringz(&file, "N"); cbor_encode_text_stringz(&file, "app.bin");
    cbor_encode_text_stringz(&file, "R"); cbor_encode_text_stringz(&file, FIRMWARE_VERSION);
    cbor_encoder_close_container(&list, &file);
    cbor_encoder_close_container(&map, &list);
    cbor_encoder_close_container(&encoder, &map);
    mqtt_publish(client, "slipway/ctrl/v1/" DEVICE_ID "/svc", buffer, cbor_encoder_get_buffer_size(&encoder, buffer), 1);
}
