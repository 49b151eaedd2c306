/** The interfaces of what sends emails and text messages; tests replace them. */

/** Sends emails; resolves when the next server has accepted the email. */
export interface Mail {
  send(email: { to: string; subject: string; text: string }): Promise<void>;
}

/** Sends text messages; `to` is a phone number as it was given. */
export interface Sms {
  send(message: { to: string; text: string }): Promise<void>;
}
