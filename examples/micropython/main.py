"""A device with MicroPython on an ESP32 or a Pico W (umqtt.simple): publishes readings and answers commands."""
import json
import random
import ssl
import time

import network
import ntptime
from umqtt.simple import MQTTClient

WIFI, WIFI_PASSWORD = "your network", "its password"
HOST, PORT = "slipway.example.com", 8883
CA = "ca.pem"  # the CA certificate, a file on the board; without TLS None, and port 1883
ACCOUNT, DEVICE, SECRET = "account id", "device id", "secret"
ROOT = "slipway/v1/{}/d/{}".format(ACCOUNT, DEVICE)

commands = []


def join():
    wifi = network.WLAN(network.STA_IF)
    wifi.active(True)
    if not wifi.isconnected():
        wifi.connect(WIFI, WIFI_PASSWORD)
    while not wifi.isconnected():
        time.sleep_ms(200)


def tls():
    ntptime.settime()  # a certificate is valid from one time to another
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=CA)
    return context


def new_client():
    client = MQTTClient(DEVICE, HOST, PORT, DEVICE, SECRET, keepalive=60, ssl=tls() if CA else None)
    # The loop answers: umqtt must not publish with QoS 1 in this callback, where it may be waiting for another answer.
    client.set_callback(lambda topic, payload: commands.append(payload))
    return client


def reply(client, command, status, result=None):
    answer = {"id": command["id"], "status": status, "result": result}
    client.publish(ROOT + "/_commands/replies", json.dumps(answer).encode(), qos=1)


def run(client, command):
    reply(client, command, "accepted")
    if command["name"] == "echo":
        reply(client, command, "succeeded", command.get("payload"))
    else:
        reply(client, command, "failed", "unknown command")


def work(client):
    client.connect()
    print("connected")
    client.subscribe(ROOT + "/_commands", 1)
    last = time.ticks_add(time.ticks_ms(), -10000)
    while True:
        client.check_msg()
        while commands:
            run(client, json.loads(commands.pop(0)))
        if time.ticks_diff(time.ticks_ms(), last) >= 10000:
            last = time.ticks_ms()
            # CSV: time (empty: now), category, number, text.
            client.publish(ROOT + "/readings", ",temperature,{:.2f},".format(20 + random.random()), qos=1)
        time.sleep_ms(100)


client = None
while True:
    try:
        join()
        client = client or new_client()
        work(client)
    except Exception as error:  # the network, the server, or a refused secret
        print("again in 5 seconds:", repr(error))
        time.sleep(5)
