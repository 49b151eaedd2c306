/** From nothing to the first message: product, channel, device, secret, lines to run, and the message itself. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { make } from '../app/entities.ts';
import { accountId } from '../app/session.ts';
import { readConnectivity, type Topic } from '../device/row.ts';
import { SameSerial, useSameSerial } from '../devices/same-serial.tsx';
import { Code } from '../parts/codes/code.tsx';
import { listen, type Message } from '../parts/data/live.ts';
import { useLoad } from '../parts/data/load.ts';
import { BrokerWarning } from '../parts/dialogs/broker-warning.tsx';
import { Field, Form, Select, type Values } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { Facts, Page, Panel } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';

const words = texts.firstDevice;

interface MadeDevice {
  id: string;
  serialNumber: string;
  secret: string;
}

export function FirstDevice() {
  const [made, setMade] = useState<MadeDevice>();
  const [heard, setHeard] = useState<Message>();
  const step = heard ? 2 : made ? 1 : 0;
  return (
    <Page title={texts.places.firstDevice}>
      <ol class="steps">
        {words.steps.map((text, at) => (
          <li key={text} aria-current={at === step ? 'step' : undefined}>
            {text}
          </li>
        ))}
      </ol>
      {made ? <Connect {...made} heard={heard} onHeard={setHeard} /> : <Make onMade={setMade} />}
    </Page>
  );
}

function Make({ onMade }: { onMade: (made: MadeDevice) => void }) {
  const [product, setProduct] = useState('');
  // If the device is refused, for example for its serial number, the next try takes the product that was made.
  const newProduct = useRef<{ name: string; id: string }>();
  const { same, mayMake } = useSameSerial();
  const save = async ({ productName = '', channel = '', serialNumber = '' }: Values) => {
    if (!(await mayMake(serialNumber))) return;
    if (product === '' && newProduct.current?.name !== productName)
      newProduct.current = { name: productName, id: await makeProduct(productName, channel) };
    const deviceTemplateId = product || newProduct.current?.id || '';
    const device = await make('device', { serialNumber, deviceTemplateId });
    const body = { accountId: accountId.value, entityId: device.id, entityType: 'device' as const };
    const { mqttCredential } = await unwrap(api.POST('/api/v1/access/mqtt-credentials', { body }));
    onMade({ id: device.id, serialNumber, secret: mqttCredential.secret });
  };
  return (
    <div class="grid">
      <Panel title={words.make}>
        <Form save={save} verb={same ? texts.devices.makeAnother : words.makeVerb}>
          <Picker kind="product" label={texts.product} value={product} none={words.newProduct} onText={setProduct} />
          {product === '' && (
            <>
              <Field
                label={words.productName}
                name="productName"
                required
                placeholder={words.productExample}
                hint={words.productHint}
              />
              <Field label={texts.channel} name="channel" required defaultValue="readings" hint={words.channelHint} />
            </>
          )}
          <Field
            label={texts.serialNumber}
            name="serialNumber"
            required
            placeholder="SN-0001"
            hint={words.serialHint}
          />
          <SameSerial same={same} />
        </Form>
      </Panel>
      <Panel title={words.what}>
        {words.whatIs.map((text) => (
          <p key={text}>{text}</p>
        ))}
      </Panel>
    </div>
  );
}

/** A product with this name, and its channel. */
async function makeProduct(name: string, channel: string): Promise<string> {
  const { id } = await make('deviceTemplate', { name });
  const of = { entityId: id, entityType: 'deviceTemplate' } as const;
  await make('channelTemplate', { ...of, name: channel, persistenceType: 'timeSeries' });
  return id;
}

interface Hearing {
  heard: Message | undefined;
  onHeard: (message: Message) => void;
}

function Connect({ id, serialNumber, secret, ...hearing }: MadeDevice & Hearing) {
  const { data: connectivity } = useLoad(() => readConnectivity(id, true), [id]);
  const [tool, setTool] = useState<keyof typeof texts.tools>('mosquitto');
  return (
    <div class="grid">
      <Panel title={words.secretOf(serialNumber)}>
        <p class="note warn">{words.secretOnce}</p>
        <Code label={texts.secret} text={secret} />
        {connectivity && (
          <Facts
            of={[
              [texts.host, <code>{connectivity.host}</code>],
              [texts.port, [<code>{connectivity.port}</code>, connectivity.tls ? ' TLS' : ` ${words.noTls}`]],
              [texts.username, <code>{id}</code>],
            ]}
          />
        )}
      </Panel>
      <Panel title={words.run}>
        <Select
          label={words.tool}
          value={tool}
          options={Object.entries(texts.tools)}
          onText={(name) => setTool(name as keyof typeof texts.tools)}
        />
        <p class="soft small">{words.toolHint}</p>
        {connectivity && <BrokerWarning host={connectivity.host} />}
        {connectivity && <Code label={words.run} text={connectivity.lines[tool].replaceAll('YOUR_SECRET', secret)} />}
      </Panel>
      {connectivity && <Hear id={id} topics={connectivity.topics.filter(({ service }) => !service)} {...hearing} />}
    </div>
  );
}

/** The newest point that is stored, as a message says it. */
async function readStored(topics: readonly Topic[]): Promise<Message | undefined> {
  for (const { topic, persistenceType } of topics) {
    if (persistenceType !== 'timeSeries') continue;
    const params = { path: { topic: `${topic}/latest` }, query: { pageSize: 1 } };
    const answer = await unwrap(api.GET('/api/v4/data/{topic}', { params }));
    const [point] = typeof answer === 'string' ? [] : answer.result;
    if (!point) continue;
    const { category = '', numericValue, stringValue, time = '' } = point;
    return { topic, payload: `,${category},${numericValue ?? ''},${stringValue ?? ''}`, time };
  }
  return undefined;
}

/** Waits for the first message, and says what was refused meanwhile. */
function Hear({ id, topics, heard, onHeard }: { id: string; topics: readonly Topic[] } & Hearing) {
  const topicsKey = topics.map(({ topic }) => topic).join(',');
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    // Who pastes the lines at once, or in front of this page, has published before the stream opens.
    const open = async (is: boolean) => {
      setOpen(is);
      const stored = is && (await readStored(topics).catch(() => undefined));
      if (stored) onHeard(stored);
    };
    return listen(topicsKey.split(','), onHeard, open).close;
  }, [topicsKey]);
  const { data } = useLoad(
    () => unwrap(api.GET('/api/v1/devices/{id}/refusals', { params: { path: { id }, query: { pageSize: 1 } } })),
    [id],
    heard ? 0 : 1000,
  );
  const [refusal] = data?.refusals.results ?? [];
  return (
    <Panel title={words.hear} aria-live="polite">
      {heard ? (
        <>
          <p class="note good">{words.heard}</p>
          <Code label={texts.message} text={heard.payload} />
          <Link class="button primary" href={`/devices/${id}`}>
            {words.toDevice}
          </Link>
        </>
      ) : (
        <p class="soft">{isOpen ? words.waiting : texts.device.connecting}</p>
      )}
      {!heard && refusal && (
        <div class="note bad">
          <p>
            {words.refused} {refusal.reason}
          </p>
          {refusal.topic && <code>{refusal.topic}</code>}
        </div>
      )}
    </Panel>
  );
}
