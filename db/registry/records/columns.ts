/** Columns that records have in common. */
import { type Static, type TSchema, Type } from 'typebox';

/** A type that may be null, written as `type: [..., 'null']`, which validators and OpenAPI 3.1 read without a union. */
export const Nullable = <T extends TSchema>(schema: T) =>
  Type.Unsafe<Static<T> | null>({ ...schema, type: [(schema as { type?: string }).type ?? 'string', 'null'] });

export const Id = Type.String({ format: 'uuid' });
export const DateText = Type.String({ format: 'date-time' });
export const OptionalId = Nullable(Id);
export const OptionalText = Nullable(Type.String());
export const OptionalDate = Nullable(DateText);

/** Fields common to every entity; `version` is a counter here and base 36 text on the wire. */
export const common = {
  id: Id,
  accountId: Id,
  created: DateText,
  createdById: Type.String(),
  lastModified: DateText,
  lastModifiedById: Type.String(),
  version: Type.Integer(),
  deleted: OptionalDate,
};
