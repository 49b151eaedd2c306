/** Loaded with the first bridge of its kind: the library costs memory that most services never need. */
export { Producer } from '@platformatic/kafka';
