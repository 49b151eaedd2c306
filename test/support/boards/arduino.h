// What programs take of Arduino for ESP32, PubSubClient and ArduinoJson 7: enough to check its types.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

typedef uint8_t byte;
class String {
 public:
  String(const char *text = "");
  String &operator+=(const String &more);
  const char *c_str() const;
};
String operator+(const String &left, const String &right);
String operator+(const String &left, const char *right);
String operator+(const String &left, float right);
void delay(uint32_t milliseconds);
unsigned long millis();
float temperatureRead();
struct SerialPort {
  void begin(unsigned long baud);
};
extern SerialPort Serial;

class Client {};
class WiFiClient : public Client {};
class WiFiClientSecure : public WiFiClient {
 public:
  void setCACert(const char *rootCA);
};
enum wl_status_t { WL_CONNECTED = 3 };
struct WiFiClass {
  wl_status_t begin(const char *name, const char *password);
  wl_status_t status();
};
extern WiFiClass WiFi;

class PubSubClient {
 public:
  explicit PubSubClient(Client &client);
  PubSubClient &setServer(const char *host, uint16_t port);
  PubSubClient &setCallback(std::function<void(char *, uint8_t *, unsigned int)> callback);
  bool setBufferSize(uint16_t size);
  bool connect(const char *id, const char *user, const char *password);
  bool connected();
  bool subscribe(const char *topic, uint8_t qos);
  bool publish(const char *topic, const char *payload);
  bool loop();
};

class JsonVariantConst {
 public:
  operator const char *() const;
  bool operator==(const char *text) const;
};
class JsonDocument {
 public:
  class Member {
   public:
    Member &operator=(const char *text);
    Member &operator=(JsonVariantConst value);
    operator JsonVariantConst() const;
    operator const char *() const;
    bool operator==(const char *text) const;
  };
  Member operator[](const char *name);
  bool set(const char *text);
  operator JsonVariantConst() const;
};
class DeserializationError {
 public:
  explicit operator bool() const;
};
DeserializationError deserializeJson(JsonDocument &document, const byte *input, size_t length);
size_t serializeJson(const JsonDocument &document, String &output);
