/** The bodies of errors. Apart from the errors themselves, which threads have that answer no request. */
import { Type } from 'typebox';

const detailShape = Type.Object({ message: Type.String(), path: Type.Optional(Type.String()) });

/** The error body of the management family. */
export const errorShape = Type.Object({
  error: Type.Object({ code: Type.Integer(), message: Type.String(), details: Type.Array(detailShape) }),
  requestId: Type.String(),
});

/** The error body of the identity family. */
export const identityErrorShape = Type.Object({
  statusCode: Type.Integer(),
  error: Type.String(),
  message: Type.String(),
  attributes: Type.Object({ errorCode: Type.String(), error: Type.String(), details: Type.Array(detailShape) }),
  requestId: Type.String(),
});
