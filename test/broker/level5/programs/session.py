"""Paho over TLS: `keep` begins a stored session, `leave` publishes and dies with a delayed will, `back` hears both."""
import os
import sys

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

port, ca, user, password, topic, role = sys.argv[1:]


def said(packet, **more):
    properties = Properties(packet)
    named = dict(ContentType="text/plain", ResponseTopic=topic, CorrelationData=b"c", UserProperty=("a", "1"))
    for name, value in (named | more).items():
        setattr(properties, name, value)
    return properties


def on_connect(client, userdata, flags, reason, _):
    if reason.value != 0:
        sys.exit(f"CONNACK: {reason}")
    if role == "keep":
        client.subscribe(topic, qos=2)
    elif role == "leave":
        client.publish(topic, "while", qos=2, properties=said(PacketTypes.PUBLISH))
    else:
        present = flags["session present"] if isinstance(flags, dict) else flags.session_present
        print(f"session {int(present)}")


def on_message(client, userdata, message):
    told = message.properties
    ((name, value),) = told.UserProperty
    correlation = told.CorrelationData.decode()
    print(message.qos, message.payload.decode(), told.ContentType, correlation, told.ResponseTopic, f"{name}={value}")
    if message.payload == b"gone":
        client.disconnect()


# paho-mqtt 2 asks which form of callbacks is meant.
versions = getattr(mqtt, "CallbackAPIVersion", None)
form = [versions.VERSION2] if versions else []
client = mqtt.Client(*form, client_id="leaving" if role == "leave" else "kept", protocol=mqtt.MQTTv5)
client.tls_set(ca)
client.username_pw_set(user, password)
client.on_connect = on_connect
client.on_subscribe = lambda *arguments: client.disconnect()
client.on_message = on_message
# Without DISCONNECT.
client.on_publish = lambda *arguments: os._exit(0)
if role == "leave":
    client.will_set(topic, "gone", 1, properties=said(PacketTypes.WILLMESSAGE, WillDelayInterval=1))
session = Properties(PacketTypes.CONNECT)
session.SessionExpiryInterval = 60
client.connect("127.0.0.1", int(port), clean_start=role == "leave", properties=session)
client.loop_forever()
