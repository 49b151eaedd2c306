/** Messages as they come, by server-sent events; the browser connects again by itself. */

export interface Message {
  topic: string;
  payload: string;
  time: string;
}

export function listen(
  topics: readonly string[],
  onMessage: (message: Message) => void,
  onState?: (open: boolean) => void,
) {
  const source = new EventSource(`/api/v1/stream?topics=${encodeURIComponent(topics.join(','))}`);
  source.addEventListener('open', () => onState?.(true));
  source.addEventListener('error', () => onState?.(false));
  source.addEventListener('message', ({ data }) => {
    const { topic, payload, payloadBase64, time } = JSON.parse(data);
    onMessage({ topic, payload: payload ?? payloadBase64 ?? '', time });
  });
  return { close: () => source.close() };
}
