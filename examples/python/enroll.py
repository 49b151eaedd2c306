"""A device that enrolls: it gets its own credential with the claim secret or its derived key, over HTTP or MQTT.

    python3 enroll.py          # over HTTP
    python3 enroll.py mqtt     # over MQTT (paho-mqtt)
"""
import base64
import hashlib
import hmac
import json
import os
import sys
import threading
import urllib.request

HOST = os.environ["SLIPWAY_HOST"]
GROUP = os.environ["SLIPWAY_GROUP"]
SERIAL = os.environ["SLIPWAY_SERIAL"]
CLAIM_SECRET = os.environ.get("SLIPWAY_CLAIM_SECRET")
KEPT = "device.json"


def proof():
    """The username and the password. The line has burnt in what SLIPWAY_GROUP_KEY makes here."""
    if CLAIM_SECRET:
        return GROUP, CLAIM_SECRET
    mac = hmac.new(os.environ["SLIPWAY_GROUP_KEY"].encode(), SERIAL.encode(), hashlib.sha256).digest()
    return f"{GROUP}/{SERIAL}", base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def over_http():
    username, password = proof()
    request = urllib.request.Request(
        f"{os.environ['SLIPWAY_URL']}/api/v1/enroll",
        json.dumps({"serialNumber": SERIAL}).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode(),
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def over_mqtt():
    import paho.mqtt.client as mqtt

    username, password = proof()
    answered, answers = threading.Event(), []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2) if hasattr(mqtt, "CallbackAPIVersion") else mqtt.Client()

    def on_message(client, userdata, message):
        answers.append((message.topic, message.payload))
        answered.set()

    client.on_connect = lambda client, *_: client.subscribe("slipway/v1/enroll/+", qos=1)
    client.on_subscribe = lambda client, *_: client.publish("slipway/v1/enroll", json.dumps({"serialNumber": SERIAL}), qos=1)
    client.on_message = on_message
    client.username_pw_set(f"enroll/{username}", password)
    if os.environ.get("SLIPWAY_CA"):
        client.tls_set(os.environ["SLIPWAY_CA"])
    client.connect(HOST, int(os.environ["SLIPWAY_PORT"]))
    client.loop_start()
    if not answered.wait(30):
        sys.exit("no answer")
    client.loop_stop()
    topic, payload = answers[0]
    if topic.endswith("/rejected"):
        sys.exit(json.loads(payload)["error"]["message"])
    return json.loads(payload)


def credential():
    """Kept from the first start on. An answer that was lost is asked for again: it is the same device."""
    if not os.path.exists(KEPT):
        answer = over_mqtt() if sys.argv[1:] == ["mqtt"] else over_http()
        with open(os.open(KEPT, os.O_WRONLY | os.O_CREAT, 0o600), "w") as kept:
            json.dump(answer, kept)
    with open(KEPT) as kept:
        return json.load(kept)


device = credential()
print(device["device"]["id"], device["broker"]["host"], *device["channels"].values())
