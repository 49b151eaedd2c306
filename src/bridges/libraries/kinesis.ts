/** Loaded with the first bridge of its kind: the library costs memory that most services never need. */
// Kinesis speaks HTTP/2 by default, which takes no agent of ours and so no checked addresses.

export { KinesisClient, PutRecordsCommand } from '@aws-sdk/client-kinesis';
export { NodeHttpHandler } from '@smithy/node-http-handler';
