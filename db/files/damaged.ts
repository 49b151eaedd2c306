/** A file of the data directory that is not what its name says. The message names it. */
export class DamagedFile extends Error {}
