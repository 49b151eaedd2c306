"""A device in Python (paho-mqtt): publishes readings and answers commands."""
import json
import os
import random
import time

import paho.mqtt.client as mqtt

ROOT = f"slipway/v1/{os.environ['SLIPWAY_ACCOUNT']}/d/{os.environ['SLIPWAY_DEVICE']}"


def reply(client, command, status, result=None):
    answer = {"id": command["id"], "status": status, "result": result}
    client.publish(f"{ROOT}/_commands/replies", json.dumps(answer), qos=1)


def on_connect(client, userdata, flags, code, *properties):
    print("connected" if code == 0 else f"refused: {code}", flush=True)
    client.subscribe(f"{ROOT}/_commands", qos=1)


def on_message(client, userdata, message):
    command = json.loads(message.payload)
    reply(client, command, "accepted")
    if command["name"] == "echo":
        reply(client, command, "succeeded", command.get("payload"))
    else:
        reply(client, command, "failed", "unknown command")


# paho-mqtt 2 asks which form of callbacks is meant.
versions = getattr(mqtt, "CallbackAPIVersion", None)
client = mqtt.Client(versions.VERSION2) if versions else mqtt.Client()
client.username_pw_set(os.environ["SLIPWAY_DEVICE"], os.environ["SLIPWAY_SECRET"])
if os.environ.get("SLIPWAY_CA"):
    client.tls_set(os.environ["SLIPWAY_CA"])
client.on_connect = on_connect
client.on_message = on_message
client.connect(os.environ.get("SLIPWAY_HOST", "localhost"), int(os.environ.get("SLIPWAY_PORT", "1883")))
client.loop_start()
while True:
    # CSV: time (empty: now), category, number, text.
    client.publish(f"{ROOT}/readings", f",temperature,{20 + random.random():.2f},", qos=1)
    time.sleep(10)
