/** Messages as they come, and a message to publish. The list stays short however long the page is open. */
import { useEffect, useState } from 'preact/hooks';
import { api, rawBody, unwrap } from '../../app/api.ts';
import { can } from '../../app/session.ts';
import { listen } from '../../parts/data/live.ts';
import { useLoad } from '../../parts/data/load.ts';
import { BrokerWarning } from '../../parts/dialogs/broker-warning.tsx';
import { toast } from '../../parts/dialogs/toast.tsx';
import { Field, Form, Select, type Values } from '../../parts/forms/form.tsx';
import { Badge, type Fact, Facts, Panel } from '../../parts/page/page.tsx';
import { texts } from '../../texts.ts';
import { type Connectivity, type DeviceRow, readConnectivity } from '../row.ts';
import { Messages, type ShownMessage } from './messages.tsx';

const words = texts.device;
const maxShown = 200;
/** Letters of a payload. */
const maxPayload = 2000;
/** Messages are shown together, at most so often, in milliseconds: a loud device must not keep the page busy. */
const showEvery = 200;

const cut = (text: string) => (text.length > maxPayload ? `${text.slice(0, maxPayload)} …` : text);

/** Stored channels of the product, then its other ones, then those that every device has. */
const rank = ({ service, persistenceType }: { service: boolean; persistenceType: string }) =>
  service ? 2 : persistenceType === 'timeSeries' ? 0 : 1;

/** The newest messages of topics, which are separated by commas. */
function useMessages(heard: string) {
  const [messages, setMessages] = useState<readonly ShownMessage[]>([]);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (heard === '') return;
    let key = 0;
    let arrived: ShownMessage[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      const newest = arrived.reverse();
      arrived = [];
      timer = undefined;
      setMessages((before) => [...newest, ...before].slice(0, maxShown));
    };
    const source = listen(
      heard.split(','),
      (message) => {
        key += 1;
        arrived.push({ ...message, payload: cut(message.payload), key, place: key % maxShown });
        if (arrived.length > maxShown) arrived.shift();
        timer ??= setTimeout(show, showEvery);
      },
      setOpen,
    );
    return () => {
      clearTimeout(timer);
      source.close();
    };
  }, [heard]);
  return { messages, open };
}

export function Live({ device }: { device: DeviceRow }) {
  const { id } = device;
  const { data: connectivity } = useLoad(() => readConnectivity(id), [id]);
  const topics = connectivity?.topics ?? [];
  const publishable = topics
    .filter(({ service, channel }) => !service || channel === '_set/fields')
    .sort((a, b) => rank(a) - rank(b));
  const heard = topics.map(({ topic }) => topic).join(',');
  const { messages, open } = useMessages(heard);
  const publish = async ({ topic = '', payload = '' }: Values) => {
    await unwrap(
      api.POST('/api/v1/messaging/publish/{topic}', {
        params: { path: { topic } },
        ...rawBody(payload, 'text/plain'),
      }),
    );
    toast(words.published);
  };
  return (
    <div class="aside">
      <section>
        <div class="row heading">
          <h2>{words.live}</h2>
          <Badge kind={open ? 'good' : 'warn'} text={open ? words.listening : words.connecting} />
        </div>
        {messages.length === 0 ? (
          <div class="tablewrap empty">
            <p>{words.noMessages}</p>
          </div>
        ) : (
          <>
            <Messages messages={messages} topics={topics} />
            {messages.length === maxShown && <p class="small soft gap">{words.newest(maxShown)}</p>}
          </>
        )}
      </section>
      <div class="stack">
        {can('publish', 'device') && (
          <Panel title={words.publish}>
            <Form light save={publish} verb={words.publishVerb}>
              <Select
                label={texts.channel}
                name="topic"
                options={publishable.map(({ topic, channel }) => [topic, channel] as const)}
              />
              <Field label={texts.message} name="payload" required defaultValue=",temperature,21.5," />
            </Form>
          </Panel>
        )}
        <Connects id={id} connectivity={connectivity} />
      </div>
    </div>
  );
}

function Connects({ id, connectivity }: { id: string; connectivity: Connectivity | undefined }) {
  const address = connectivity && `${connectivity.host}:${connectivity.port}`;
  const own = connectivity?.topics.filter(({ service }) => !service) ?? [];
  return (
    <Panel title={words.connects}>
      {connectivity && <BrokerWarning host={connectivity.host} />}
      <Facts
        kind="stacked"
        of={[
          [texts.host, [<code>{address}</code>, connectivity?.tls && ' TLS']],
          [texts.username, <code>{id}</code>],
          ...own.map(({ topic, channel }): Fact => [channel, <code>{topic}</code>]),
        ]}
      />
    </Panel>
  );
}
