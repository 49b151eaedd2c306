/** Loaded with the first bridge of its kind: the library costs memory that most services never need. */
export { jetstream } from '@nats-io/jetstream';
export { connect, headers } from '@nats-io/transport-node';
