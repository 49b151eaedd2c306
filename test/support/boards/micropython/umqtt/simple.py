"""What programs take of umqtt.simple, done by paho-mqtt."""
import queue

import paho.mqtt.client as mqtt

versions = getattr(mqtt, "CallbackAPIVersion", None)


class MQTTException(Exception):
    pass


class MQTTClient:
    def __init__(self, client_id, server, port=0, user=None, password=None, keepalive=0, ssl=None):
        self.server, self.port, self.keepalive = server, port or (8883 if ssl else 1883), keepalive or 60
        self.client = mqtt.Client(versions.VERSION2, client_id) if versions else mqtt.Client(client_id)
        self.client.username_pw_set(user, password)
        if ssl:
            self.client.tls_set_context(ssl)
        self.events, self.messages = queue.Queue(), queue.Queue()
        self.client.on_connect = lambda client, data, flags, code, *rest: self.events.put(code)
        self.client.on_subscribe = lambda *rest: self.events.put(0)
        self.client.on_message = lambda client, data, message: self.messages.put(message)
        self.callback = None

    def set_callback(self, callback):
        self.callback = callback

    def connect(self):
        self.client.connect(self.server, self.port, self.keepalive)
        self.client.loop_start()
        code = self.events.get(timeout=10)
        if code != 0:
            raise MQTTException(code)

    def subscribe(self, topic, qos=0):
        assert self.callback is not None, "Subscribe callback is not set"
        self.client.subscribe(topic, qos)
        self.events.get(timeout=10)

    def check_msg(self):
        if not self.client.is_connected():
            raise OSError(-1)
        try:
            message = self.messages.get_nowait()
        except queue.Empty:
            return
        self.callback(message.topic.encode(), message.payload)

    def publish(self, topic, message, retain=False, qos=0):
        # The library of boards sends characters, and says how many: text beyond ASCII must be bytes.
        assert all(isinstance(one, bytes) or one.isascii() for one in (topic, message))
        text = topic.decode() if isinstance(topic, bytes) else topic
        self.client.publish(text, message, qos, retain).wait_for_publish()

    def disconnect(self):
        self.client.disconnect()
        self.client.loop_stop()
