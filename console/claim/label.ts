/** What the QR code of a label says: a link with the code of a unit and its account, or the code alone. */

export interface Label {
  code: string;
  /** Undefined where the label does not name it. */
  account?: string | undefined;
}

export function readLabel(text: string): Label {
  if (!URL.canParse(text)) return { code: text.trim() };
  const { searchParams } = new URL(text);
  return { code: searchParams.get('code') ?? '', account: searchParams.get('account') ?? undefined };
}
