/** The fields of a command whose name is typed. */
import { Field, TextArea } from '../../parts/forms/form.tsx';
import { texts } from '../../texts.ts';

const words = texts.commands;

/** The typed payload: parsed as JSON if it is JSON, else the text itself. */
export function payloadOf(text: string | undefined): { payload?: unknown } {
  if (text === undefined) return {};
  try {
    return { payload: JSON.parse(text) as unknown };
  } catch {
    return { payload: text };
  }
}

/** The fields of a command, also of one that goes to many devices. */
export function CommandFields() {
  return (
    <>
      <Field label={words.name} name="commandName" required placeholder="reboot" />
      <TextArea label={texts.payload} name="payload" hint={words.payloadHint} />
    </>
  );
}
