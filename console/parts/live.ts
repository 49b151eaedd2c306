/** Messages as they come, by server-sent events; the browser connects again by itself. */
import { renewSession } from '../app/acting.ts';

export interface Message {
  topic: string;
  payload: string;
  time: string;
  properties?: MessageProperties;
}

/** What an MQTT 5 client sent along, and what its sender over HTTP did. */
export interface MessageProperties {
  contentType?: string;
  responseTopic?: string;
  /** Base64. */
  correlationData?: string;
  userProperties?: readonly (readonly [name: string, value: string])[];
  /** Seconds that are left. */
  messageExpiry?: number;
}

/** Milliseconds. A page that is being left closes its streams too: it must not renew, for it would lose the new CSRF token. */
const pauseBefore = 500;

export function listen(
  topics: readonly string[],
  onMessage: (message: Message) => void,
  onState?: (open: boolean) => void,
) {
  let source = open();
  let isWanted = true;
  let hasRenewed = false;
  let waiting: ReturnType<typeof setTimeout> | undefined;

  function open(): EventSource {
    const opening = new EventSource(`/api/v1/stream?topics=${encodeURIComponent(topics.join(','))}`);
    opening.addEventListener('open', () => {
      hasRenewed = false;
      onState?.(true);
    });
    opening.addEventListener('error', () => {
      onState?.(false);
      if (opening.readyState === EventSource.CLOSED) waiting = setTimeout(openRenewed, pauseBefore);
    });
    opening.addEventListener('message', ({ data }) => {
      const { topic, payload, payloadBase64, time, properties } = JSON.parse(data);
      onMessage({ topic, payload: payload ?? payloadBase64 ?? '', time, properties });
    });
    return opening;
  }

  /** The browser gives up after an error status: the token may have expired. Tried once until a stream opens. */
  async function openRenewed(): Promise<void> {
    if (hasRenewed) return;
    hasRenewed = true;
    const isAlive = await renewSession().catch(() => false);
    if (isAlive && isWanted) source = open();
  }

  return {
    close: () => {
      isWanted = false;
      clearTimeout(waiting);
      source.close();
    },
  };
}
