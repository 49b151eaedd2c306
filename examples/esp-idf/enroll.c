/* A part of a program that enrolls: the credential is in NVS after the first start. your_program.h has the rest of it:
   http_post is a request, derived_key what the line has burnt in, and store and load keep a text in NVS. */
#include "cJSON.h"
#include "esp_http_client.h"
#include "your_program.h"
#include <stdio.h>

/* Whether there is a credential. Call it again later if not: the same request gives the same device. */
bool enroll(const char *group, const char *serial) {
    if (load("device") != NULL) return true;
    char username[128], body[300], answer[4096];
    snprintf(username, sizeof username, "%s/%s", group, serial);
    snprintf(body, sizeof body, "{\"serialNumber\":\"%s\",\"firmwareVersion\":\"%s\"}", serial, FIRMWARE_VERSION);
    esp_http_client_config_t ask = {
        .url = "https://things.example.com/api/v1/enroll",
        .username = username, .password = derived_key(), .auth_type = HTTP_AUTH_TYPE_BASIC,
        .crt_bundle_attach = esp_crt_bundle_attach,
    };
    int length = http_post(&ask, body, answer, sizeof answer - 1);
    cJSON *json = length > 0 ? cJSON_ParseWithLength(answer, length) : NULL;
    cJSON *credential = cJSON_GetObjectItem(json, "credential");
    if (credential) {
        store("device", cJSON_GetStringValue(cJSON_GetObjectItem(credential, "username")));
        store("secret", cJSON_GetStringValue(cJSON_GetObjectItem(credential, "secret")));
    }
    cJSON_Delete(json);
    return credential != NULL;
}
