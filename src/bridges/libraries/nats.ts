/** Loaded with the first bridge of its kind: the library costs memory that most services never need. */
export { jetstream } from '@nats-io/jetstream';
export { headers } from '@nats-io/nats-core';
export { NatsConnectionImpl, setTransportFactory } from '@nats-io/nats-core/internal';
