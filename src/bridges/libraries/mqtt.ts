/** Loaded with the first bridge of its kind: the library costs memory that most services never need. */
export { MqttClient } from 'mqtt';
