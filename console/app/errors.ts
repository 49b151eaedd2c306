/** What the API answers instead of what was asked for. */
import { texts } from '../words.ts';

/** An error of the API: a sentence, the details, and the id of the request. */
export class ApiError extends Error {
  override name = 'ApiError';
  readonly status: number;
  readonly requestId: string;
  /** What is said to people in place of its message. */
  said: string | undefined;
  readonly details: { path?: string; message?: string; [more: string]: unknown }[];

  constructor(status: number, body: unknown, requestId: string) {
    const said = body as {
      message?: string;
      error?: { message?: string; details?: ApiError['details'] } | string;
      attributes?: { error?: string; details?: ApiError['details'] };
    } | null;
    const error = typeof said?.error === 'object' ? said.error : undefined;
    const plain = status === 401 ? (said?.attributes?.error ?? said?.message) : said?.message;
    super(error?.message ?? plain ?? (isFromProxy(status, requestId) ? texts.unreachable : texts.failed));
    this.status = status;
    this.requestId = requestId;
    this.details = error?.details ?? said?.attributes?.details ?? [];
  }

  /** The details that the message does not have. */
  get more() {
    return this.details.filter(({ message = '' }) => !this.message.includes(message.replace(/\.$/, '')));
  }
}

/** What is said to people: in English the sentence of the API, in other languages what they have for its status. */
export function sentenceOf(error: unknown): string {
  const { message } = error as Error;
  if (!(error instanceof ApiError)) return message;
  if (error.said !== undefined) return error.said;
  return texts.language === 'en' ? message : (texts.refused[error.status] ?? texts.failed);
}

/** Whether a proxy has answered that the service does not: its own answers have an id. */
export const isFromProxy = (status: number, requestId: string): boolean =>
  requestId === '' && [502, 503, 504].includes(status);
