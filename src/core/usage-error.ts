/** What a person has asked for at the command line cannot be done; the sentence says why and what to do. Exit code 2. */
export class UsageError extends Error {}
