module example.com/slipway-device

go 1.19

require github.com/eclipse/paho.mqtt.golang v1.4.3
