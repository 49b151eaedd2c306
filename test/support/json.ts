// biome-ignore lint/suspicious/noExplicitAny: answers are what the test says they are
export type Json = any;
