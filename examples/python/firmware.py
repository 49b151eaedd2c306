"""A device that gets firmware as JSON over MQTT: python3 firmware.py HOST PORT ACCOUNT DEVICE SECRET VERSION"""
import hashlib
import json
import sys
import urllib.request

import paho.mqtt.client as mqtt

host, port, account, device, secret, running = sys.argv[1:]
root = f"slipway/v1/{account}/d/{device}"


def say(client, offer, state, **more):
    report = {"state": state, "firmwareVersion": offer["firmwareVersion"], **more}
    client.publish(f"{root}/_firmware/status", json.dumps(report), qos=1)


def on_message(client, _, message):
    offer = json.loads(message.payload)
    if not offer["files"]:
        return
    if offer["firmwareVersion"] == running:
        return say(client, offer, "succeeded")  # It runs since the restart.
    say(client, offer, "downloading")
    for file in offer["files"]:
        with urllib.request.urlopen(file["url"]) as response:
            content = response.read()
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            return say(client, offer, "failed", code=-1, message="wrong hash")
        with open(file["name"], "wb") as target:
            target.write(content)
    say(client, offer, "installing")
    # Restart with the new firmware here. Then the device connects again and reports succeeded.


# paho-mqtt 2 asks which form of callbacks is meant.
versions = getattr(mqtt, "CallbackAPIVersion", None)
client = mqtt.Client(versions.VERSION2) if versions else mqtt.Client()
client.username_pw_set(device, secret)
client.on_connect = lambda client, *_: client.subscribe(f"{root}/_firmware", qos=1)
client.on_message = on_message
client.connect(host, int(port))
client.loop_forever()
