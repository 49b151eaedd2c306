/** Requests of the page to the API, for "Show the call". Secrets are blanked before they are kept. */
import { signal } from '@preact/signals';

export interface Call {
  method: string;
  url: string;
  requestBody: string;
  status: number;
  answer: string;
  requestId: string;
}

const maxCalls = 20;
const maxTextLength = 4000;
/** Of longer texts only the beginning is kept. */
export const maxParsedLength = 20_000;
const secrets =
  '(?:password|oldPassword|newPassword|idmUserPassword|secret|clientSecret|claimSecret|groupKey|hookSecret|jwt|csrfToken|appToken|mfaToken|token|code|codes|recoveryCodes|associationCode|otpauthUrl|passwordResetToken|resetToken)';
const secretNames = new RegExp(`^${secrets}$`);
/** A secret in the text of JSON; the text may end within it. */
const secretTexts = new RegExp(`("${secrets}"\\s*:\\s*")(?:[^"\\\\]|\\\\.)*`, 'g');

export const calls = signal<readonly Call[]>([]);

export function recordCall(call: Call): void {
  calls.value = [call, ...calls.value].slice(0, maxCalls);
}

/** A JSON text without its secrets; long ones are cut. */
export function blankSecrets(text: string): string {
  if (text === '') return '';
  if (text.length > maxParsedLength) return text.slice(0, maxTextLength).replace(secretTexts, '$1•••');
  try {
    const blanked: unknown = JSON.parse(text, (name, value: unknown) =>
      secretNames.test(name) && (typeof value === 'string' || Array.isArray(value)) ? '•••' : value,
    );
    return JSON.stringify(blanked, null, 2).slice(0, maxTextLength);
  } catch {
    return text.slice(0, maxTextLength).replace(secretTexts, '$1•••');
  }
}

/** The call as a command to paste; TOKEN stands for the token. */
export function curlOf({ method, url, requestBody }: Call): string {
  const body =
    requestBody === '' ? '' : ` \\\n  -H 'Content-Type: application/json' -d '${requestBody.replaceAll("'", "'\\''")}'`;
  return `curl -sS -X ${method} '${url}' \\\n  -H "Authorization: Bearer $TOKEN"${body}`;
}
