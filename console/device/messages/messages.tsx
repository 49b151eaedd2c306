/** Messages as a table of what they say: a row for each value, and the message itself behind it. */
import { Fragment } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Message, MessageProperties } from '../../parts/data/live.ts';
import { Button } from '../../parts/forms/form.tsx';
import { Icon } from '../../parts/page/icons.tsx';
import { Facts } from '../../parts/page/shown.tsx';
import { texts } from '../../texts.ts';
import type { Topic } from '../row.ts';
import { pointsOf } from './points.ts';

const words = texts.device;
/** Letters of a message that is in no known form. */
const maxValue = 160;

/** A new message takes the place, and so the rows of the page, of one that is not shown any more. */
export type ShownMessage = Message & { key: number; place: number };

export function Messages({ messages, topics }: { messages: readonly ShownMessage[]; topics: readonly Topic[] }) {
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const byTopic = useMemo(() => new Map(topics.map((one) => [one.topic, one])), [topics]);
  const toggle = (key: number) => {
    const next = new Set(opened);
    if (!next.delete(key)) next.add(key);
    setOpened(next);
  };
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keyboard
    <section class="tablewrap messages" tabIndex={0} aria-label={words.live}>
      <table>
        <thead>
          <tr>
            <th class="tick">
              <span class="hidden">{texts.message}</span>
            </th>
            {[texts.time, texts.channel, texts.category, texts.value].map((label) => (
              <th key={label} scope="col">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {messages.map((message) => (
            <Fragment key={message.place}>
              <Rows
                message={message}
                topic={byTopic.get(message.topic)}
                isOpen={opened.has(message.key)}
                onToggle={() => toggle(message.key)}
              />
            </Fragment>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Rows({
  message: { topic: address, payload, time, properties },
  topic,
  isOpen,
  onToggle,
}: {
  message: ShownMessage;
  topic: Topic | undefined;
  isOpen: boolean;
  onToggle: () => void;
}) {
  const channel = topic?.channel ?? address;
  const points = useMemo(() => (topic?.service ? undefined : pointsOf(payload)), [payload, topic]);
  const rows = points ?? [{ category: '', value: payload.slice(0, maxValue), time: undefined }];
  const shape = (category: string) => topic?.categories.find(({ name }) => name === category);
  return (
    <>
      {rows.map(({ category, value, time: own }, at) => {
        const { label = category, unit = '' } = shape(category) ?? {};
        return (
          <tr key={`${at}${category}`} class={at > 0 ? 'more' : undefined}>
            <td class="tick">
              {at === 0 && (
                <Button
                  label={<Icon name="right" />}
                  class="plain unfold"
                  aria-expanded={isOpen}
                  aria-label={words.rawOf(channel, clock.format(Date.parse(time)))}
                  onClick={onToggle}
                />
              )}
            </td>
            <td>
              <LocalTime time={own ?? Date.parse(time)} />
            </td>
            <td>{channel}</td>
            <td>{label || <span class="soft">–</span>}</td>
            <td class="wrap">
              <b>{points ? String(value) : ''}</b>
              {points ? ` ${unit}` : <code>{value}</code>}
            </td>
          </tr>
        );
      })}
      {isOpen && (
        <tr class="raw">
          <td class="wrap" colSpan={5}>
            <code>{payload}</code>
            {properties && <Properties of={properties} />}
          </td>
        </tr>
      )}
    </>
  );
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
const withDay = new Intl.DateTimeFormat(undefined, { dateStyle: 'short', timeStyle: 'medium' });

/** In the time of the reader; the day too, if it is not today. */
function LocalTime({ time }: { time: number }) {
  const date = new Date(time);
  const isToday = date.toDateString() === new Date().toDateString();
  return (
    <time dateTime={date.toISOString()} title={date.toISOString()}>
      {(isToday ? clock : withDay).format(date)}
    </time>
  );
}

/** What came along with a message, in the order of MQTT: a user property by its own name. */
function Properties({ of }: { of: MessageProperties }) {
  const { contentType, responseTopic, correlationData, userProperties = [], messageExpiry } = of;
  const named = [
    [words.contentType, contentType],
    [words.responseTopic, responseTopic],
    [words.correlationData, correlationData],
    ...userProperties,
    [words.expiresIn, messageExpiry === undefined ? undefined : words.secondsLeft(messageExpiry)],
  ] as const;
  return <Facts kind="properties" of={named.filter(([, value]) => value !== undefined)} />;
}
