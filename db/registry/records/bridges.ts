/** Messages to other systems. */
import { Type } from 'typebox';
import { common, OptionalText } from './columns.js';

/** Where messages are sent on to. The URL may hold a password of its own: it is sealed as the secret is. */
export const BridgeRecord = Type.Object({
  ...common,
  name: Type.String(),
  kind: Type.String(),
  sealedUrl: Type.String(),
  sealedSecret: OptionalText,
  form: Type.String(),
  /** A JSON object of texts. */
  settings: Type.String(),
});
