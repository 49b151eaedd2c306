"""Request and response with MQTT 5 (paho-mqtt): `request.py answer` is the device, `request.py ask` asks it."""
import json
import os
import random
import sys
import uuid

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

DEVICE = os.environ["SLIPWAY_DEVICE"]
ROOT = f"slipway/v1/{os.environ['SLIPWAY_ACCOUNT']}/d/{DEVICE}"
ASKS = sys.argv[1] == "ask"
CORRELATION = uuid.uuid4().bytes


def properties(packet, **named):
    made = Properties(packet)
    for name, value in named.items():
        setattr(made, name, value)
    return made


def on_connect(client, userdata, flags, reason, _):
    if reason.value >= 0x80:
        sys.exit(f"refused: {reason}")
    client.subscribe(f"{ROOT}/responses" if ASKS else f"{ROOT}/requests", qos=1)


def on_subscribe(client, userdata, mid, reasons, _):
    if reasons[0].value >= 0x80:
        sys.exit(f"refused: {reasons[0]}")
    print("ready", flush=True)
    if ASKS:
        request = properties(
            PacketTypes.PUBLISH,
            ContentType="application/json",
            ResponseTopic=f"{ROOT}/responses",
            CorrelationData=CORRELATION,
            MessageExpiryInterval=60,
        )
        client.publish(f"{ROOT}/requests", '{"read":"temperature"}', qos=1, properties=request)


def answer(client, userdata, message):
    request = message.properties
    if not hasattr(request, "ResponseTopic"):
        return
    response = properties(PacketTypes.PUBLISH, ContentType="application/json")
    if hasattr(request, "CorrelationData"):
        response.CorrelationData = request.CorrelationData
    value = json.dumps({"temperature": round(20 + random.random(), 2)})
    client.publish(request.ResponseTopic, value, qos=1, properties=response)


def take(client, userdata, message):
    if getattr(message.properties, "CorrelationData", None) != CORRELATION:
        return  # The response to another request.
    print(message.payload.decode(), flush=True)
    client.disconnect()


# paho-mqtt 2 asks which form of callbacks is meant.
versions = getattr(mqtt, "CallbackAPIVersion", None)
form = [versions.VERSION2] if versions else []
client = mqtt.Client(*form, client_id="" if ASKS else f"{DEVICE}-requests", protocol=mqtt.MQTTv5)
if ASKS:
    client.username_pw_set("Auth:JWT", os.environ["SLIPWAY_TOKEN"])
else:
    client.username_pw_set(DEVICE, os.environ["SLIPWAY_SECRET"])
if os.environ.get("SLIPWAY_CA"):
    client.tls_set(os.environ["SLIPWAY_CA"])
client.on_connect = on_connect
client.on_subscribe = on_subscribe
client.on_message = take if ASKS else answer
# Requests wait for an hour while the device is away.
session = properties(PacketTypes.CONNECT, SessionExpiryInterval=0 if ASKS else 3600)
host, port = os.environ.get("SLIPWAY_HOST", "localhost"), int(os.environ.get("SLIPWAY_PORT", "1883"))
client.connect(host, port, clean_start=ASKS, properties=session)
client.loop_forever()
