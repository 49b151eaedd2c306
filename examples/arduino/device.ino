// A device on an ESP32 with Arduino (PubSubClient, ArduinoJson): publishes readings and answers commands.
#include <ArduinoJson.h>
#include <PubSubClient.h>
#include <WiFi.h>
#include <WiFiClientSecure.h>

const char *WIFI = "your network", *WIFI_PASSWORD = "its password";
const char *HOST = "slipway.example.com";
const int PORT = 8883;
const char *ACCOUNT = "account id", *DEVICE = "device id", *SECRET = "secret";
// The CA certificate. Without TLS: WiFiClient for WiFiClientSecure, no setCACert, and port 1883.
const char *CA = R"(-----BEGIN CERTIFICATE-----
the lines of ca.pem
-----END CERTIFICATE-----
)";

WiFiClientSecure network;
PubSubClient client(network);
String root = String("slipway/v1/") + ACCOUNT + "/d/" + DEVICE;
unsigned long last = 0;

void reply(const char *id, const char *status, JsonVariantConst result) {
  JsonDocument answer;
  answer["id"] = id;
  answer["status"] = status;
  answer["result"] = result;
  String text;
  serializeJson(answer, text);
  client.publish((root + "/_commands/replies").c_str(), text.c_str());
}

void onMessage(char *topic, byte *payload, unsigned int length) {
  JsonDocument command;
  if (deserializeJson(command, payload, length)) return;
  JsonDocument none;
  reply(command["id"], "accepted", none);
  if (command["name"] == "echo") {
    reply(command["id"], "succeeded", command["payload"]);
  } else {
    none.set("unknown command");
    reply(command["id"], "failed", none);
  }
}

void setup() {
  Serial.begin(115200);
  WiFi.begin(WIFI, WIFI_PASSWORD);
  while (WiFi.status() != WL_CONNECTED) delay(200);
  network.setCACert(CA);
  client.setServer(HOST, PORT);
  client.setBufferSize(1024);
  client.setCallback(onMessage);
}

void loop() {
  if (!client.connected()) {
    if (!client.connect(DEVICE, DEVICE, SECRET)) return delay(5000);
    client.subscribe((root + "/_commands").c_str(), 1);
  }
  client.loop();
  if (millis() - last < 10000) return;
  last = millis();
  // CSV: time (empty: now), category, number, text.
  String reading = String(",temperature,") + temperatureRead() + ",";
  client.publish((root + "/readings").c_str(), reading.c_str());
}
