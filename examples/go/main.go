// A device in Go (paho.mqtt.golang): publishes readings and answers commands.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

type command struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Payload json.RawMessage `json:"payload"`
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func main() {
	device := os.Getenv("SLIPWAY_DEVICE")
	root := "slipway/v1/" + os.Getenv("SLIPWAY_ACCOUNT") + "/d/" + device
	scheme := "tcp"
	options := mqtt.NewClientOptions().SetUsername(device).SetPassword(os.Getenv("SLIPWAY_SECRET"))
	if file := os.Getenv("SLIPWAY_CA"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		options.SetTLSConfig(&tls.Config{RootCAs: roots})
		scheme = "ssl"
	}
	options.AddBroker(fmt.Sprintf("%s://%s:%s", scheme, setting("SLIPWAY_HOST", "localhost"), setting("SLIPWAY_PORT", "1883")))

	reply := func(client mqtt.Client, id, status string, result any) {
		answer, _ := json.Marshal(map[string]any{"id": id, "status": status, "result": result})
		client.Publish(root+"/_commands/replies", 1, false, answer)
	}
	options.SetOnConnectHandler(func(client mqtt.Client) {
		client.Subscribe(root+"/_commands", 1, func(client mqtt.Client, message mqtt.Message) {
			var asked command
			if err := json.Unmarshal(message.Payload(), &asked); err != nil {
				return
			}
			reply(client, asked.ID, "accepted", nil)
			if asked.Name == "echo" {
				reply(client, asked.ID, "succeeded", asked.Payload)
			} else {
				reply(client, asked.ID, "failed", "unknown command")
			}
		})
	})
	client := mqtt.NewClient(options)
	if token := client.Connect(); token.Wait() && token.Error() != nil {
		log.Fatal(token.Error())
	}
	for {
		// CSV: time (empty: now), category, number, text.
		client.Publish(root+"/readings", 1, false, fmt.Sprintf(",temperature,%.2f,", 20+rand.Float64()))
		time.Sleep(10 * time.Second)
	}
}
