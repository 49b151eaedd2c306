/* What programs take of Zephyr, as its documentation declares it: enough to check their types. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
typedef struct {
  int64_t ticks;
} k_timeout_t;
#define K_SECONDS(seconds) ((k_timeout_t){(seconds) * 1000})
int32_t k_sleep(k_timeout_t timeout);
int64_t k_uptime_get(void);
void printk(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint32_t sys_rand32_get(void);

#define AF_INET 1
#define SOCK_STREAM 1
#define ZSOCK_POLLIN 1
typedef unsigned short sa_family_t;
struct sockaddr {
  sa_family_t sa_family;
  char data[24];
};
struct sockaddr_storage {
  sa_family_t ss_family;
  char data[24];
};
struct zsock_addrinfo {
  struct zsock_addrinfo *ai_next;
  int ai_flags, ai_family, ai_socktype, ai_protocol, ai_eflags;
  size_t ai_addrlen;
  struct sockaddr *ai_addr;
  char *ai_canonname;
};
struct zsock_pollfd {
  int fd;
  short events, revents;
};
int zsock_getaddrinfo(const char *host, const char *service, const struct zsock_addrinfo *hints,
                      struct zsock_addrinfo **found);
void zsock_freeaddrinfo(struct zsock_addrinfo *found);
int zsock_poll(struct zsock_pollfd *sockets, int count, int timeout);

typedef int sec_tag_t;
#define TLS_PEER_VERIFY_REQUIRED 2
enum tls_credential_type { TLS_CREDENTIAL_NONE, TLS_CREDENTIAL_CA_CERTIFICATE };
int tls_credential_add(sec_tag_t tag, enum tls_credential_type type, const void *text, size_t length);

enum mqtt_evt_type { MQTT_EVT_CONNACK, MQTT_EVT_DISCONNECT, MQTT_EVT_PUBLISH, MQTT_EVT_PUBACK };
enum mqtt_version { MQTT_VERSION_3_1_1 = 4 };
enum mqtt_qos { MQTT_QOS_0_AT_MOST_ONCE, MQTT_QOS_1_AT_LEAST_ONCE };
enum mqtt_transport_type { MQTT_TRANSPORT_NON_SECURE, MQTT_TRANSPORT_SECURE };
struct mqtt_utf8 {
  const uint8_t *utf8;
  uint32_t size;
};
#define MQTT_UTF8_LITERAL(text) ((struct mqtt_utf8){(const uint8_t *)(text), sizeof(text) - 1})
struct mqtt_binstr {
  uint8_t *data;
  uint32_t len;
};
struct mqtt_topic {
  struct mqtt_utf8 topic;
  uint8_t qos;
};
struct mqtt_publish_message {
  struct mqtt_topic topic;
  struct mqtt_binstr payload;
};
struct mqtt_publish_param {
  struct mqtt_publish_message message;
  uint16_t message_id;
  uint8_t dup_flag : 1, retain_flag : 1;
};
struct mqtt_puback_param {
  uint16_t message_id;
};
struct mqtt_subscription_list {
  struct mqtt_topic *list;
  uint16_t list_count, message_id;
};
union mqtt_evt_param {
  struct mqtt_publish_param publish;
  struct mqtt_puback_param puback;
};
struct mqtt_evt {
  enum mqtt_evt_type type;
  union mqtt_evt_param param;
  int result;
};
struct mqtt_client;
typedef void (*mqtt_evt_cb_t)(struct mqtt_client *client, const struct mqtt_evt *event);
struct mqtt_sec_config {
  int peer_verify;
  uint32_t cipher_count;
  const int *cipher_list;
  uint32_t sec_tag_count;
  const sec_tag_t *sec_tag_list;
  const char *hostname;
};
struct mqtt_transport {
  enum mqtt_transport_type type;
  union {
    struct {
      int sock;
    } tcp;
    struct {
      int sock;
      struct mqtt_sec_config config;
    } tls;
  };
};
struct mqtt_client {
  struct mqtt_transport transport;
  struct mqtt_utf8 client_id;
  const void *broker;
  struct mqtt_utf8 *user_name, *password;
  mqtt_evt_cb_t evt_cb;
  uint8_t *rx_buf;
  uint32_t rx_buf_size;
  uint8_t *tx_buf;
  uint32_t tx_buf_size;
  uint16_t keepalive;
  uint8_t protocol_version;
  uint8_t clean_session : 1;
};
void mqtt_client_init(struct mqtt_client *client);
int mqtt_connect(struct mqtt_client *client);
int mqtt_publish(struct mqtt_client *client, const struct mqtt_publish_param *message);
int mqtt_publish_qos1_ack(struct mqtt_client *client, const struct mqtt_puback_param *answer);
int mqtt_subscribe(struct mqtt_client *client, const struct mqtt_subscription_list *list);
int mqtt_abort(struct mqtt_client *client);
int mqtt_live(struct mqtt_client *client);
int mqtt_input(struct mqtt_client *client);
int mqtt_disconnect(struct mqtt_client *client, const void *param);
int mqtt_readall_publish_payload(struct mqtt_client *client, uint8_t *buffer, size_t length);
