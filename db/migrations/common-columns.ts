/** The columns that every table of entities has, in a CREATE TABLE; devices are numbered, and their id is no primary key. */
export const columnsButId = `
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "created" TEXT NOT NULL,
    "createdById" TEXT NOT NULL,
    "lastModified" TEXT NOT NULL,
    "lastModifiedById" TEXT NOT NULL,
    "version" INTEGER NOT NULL,
    "deleted" TEXT`;
export const commonColumns = `
    "id" TEXT NOT NULL PRIMARY KEY,${columnsButId}`;
