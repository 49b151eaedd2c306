/** A new password, and beside it whose it is: the person's password manager keeps both. */
import type { ComponentProps } from 'preact';
import { Field } from './form.tsx';

/** `of` is the email address of the login; undefined where the form has a field for it, which says that it is a user name. */
export function NewPassword({ of, ...field }: ComponentProps<typeof Field> & { of: string | undefined }) {
  return (
    <>
      {of !== undefined && <input type="text" autoComplete="username" value={of} readOnly hidden />}
      <Field {...field} type="password" autoComplete="new-password" />
    </>
  );
}
