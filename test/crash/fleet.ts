/** Everybody who speaks to the service during the proof. */
import type { Login } from '../../bench/link.ts';
import type { Api } from './api.ts';
import { Commander, Updater } from './downlink-writers.ts';
import { Claimer, JobSender, StationWriter } from './factory-writers.ts';
import { Publisher } from './publisher.ts';
import { Subscriber } from './subscriber.ts';
import { Maker, Rekeyer, Renamer, type Writer } from './writers.ts';

const topicRoot = 'slipway/v1';
/** Points and log entries carry times of their own, a millisecond each, so that a range names messages. */
const epoch = Date.parse('2026-01-01T00:00:00Z');
export const timeOf = (n: number) => new Date(epoch + n).toISOString();

/** One message in each text form, and its number again. */
const forms = {
  plain: { write: (n: number) => `${n}`, read: Number },
  point: { write: (n: number) => `${epoch + n},n,${n},`, read: (text: string) => Number(text.split(',')[2]) },
  entry: {
    write: (n: number) => JSON.stringify({ message: `${n}`, sourceTimestamp: timeOf(n) }),
    read: (text: string) => Number(JSON.parse(text).message),
  },
  fields: {
    write: (n: number) => JSON.stringify({ state: { name: `${n}` } }),
    read: (text: string) => Number(JSON.parse(text).state.name),
  },
};

/** One publisher each: its channel, what it sends there, and whether it is retained. */
const streams = [
  { name: 'temperature', form: forms.point, qos: 1, retain: false },
  { name: 'temperature', form: forms.point, qos: 2, retain: false },
  { name: 'chat', form: forms.plain, qos: 1, retain: false },
  { name: 'chat', form: forms.plain, qos: 2, retain: false },
  { name: '_log', form: forms.entry, qos: 1, retain: false },
  { name: 'state', form: forms.plain, qos: 1, retain: true },
  { name: 'state', form: forms.plain, qos: 2, retain: true },
  { name: '_set/fields', form: forms.fields, qos: 1, retain: false },
] as const;

export interface Source {
  channel: (typeof streams)[number]['name'];
  deviceId: string;
  publisher: Publisher;
}

export interface Fleet {
  sources: Source[];
  /** Each has a stored session: one is there all the time, one only after each restart. */
  present: Subscriber;
  absent: Subscriber;
  writers: Writer[];
  /** A login that leaves no trace on devices. */
  visitor: Login;
  /** Where the visitor publishes after each start; the message is stored before it is acknowledged. */
  probeTopic: string;
}

/** Makes the devices over HTTP; each has a template of its own kind with the channels above. */
export async function makeFleet(api: Api): Promise<Fleet> {
  const { deviceTemplate } = await api.ok('POST', '/api/v1/devices/templates', { name: 'Crash' });
  for (const name of ['temperature', 'chat', 'state'])
    await api.ok('POST', '/api/v1/channels/templates', {
      entityId: deviceTemplate.id,
      entityType: 'deviceTemplate',
      name,
      persistenceType: name === 'temperature' ? 'timeSeries' : 'simple',
    });
  const makeDevice = async (serialNumber: string): Promise<string> => {
    const body = { serialNumber, deviceTemplateId: deviceTemplate.id };
    return (await api.ok('POST', '/api/v1/devices', body)).device.id;
  };

  const sources: Source[] = [];
  for (const { name, form, qos, retain } of streams) {
    const deviceId = await makeDevice(`${name} ${qos}`);
    const credential = { entityId: deviceId, entityType: 'device' };
    const { mqttCredential } = await api.ok('POST', '/api/v1/access/mqtt-credentials', credential);
    const login = { username: deviceId, password: mqttCredential.secret, clientId: 'publisher' };
    const topic = `${topicRoot}/${api.accountId}/d/${deviceId}/${name}`;
    sources.push({
      channel: name,
      deviceId,
      publisher: new Publisher({ login, topic, qos, retain, payload: form.write }),
    });
  }

  const visitor = { username: 'Auth:JWT', password: api.token, clientId: 'visitor' };
  const filters = sources.map(({ publisher }) => publisher.stream.topic);
  const read = (topic: string, payload: string) => {
    const stream = streams.find(({ name }) => topic.endsWith(`/${name}`));
    return stream ? stream.form.read(payload) : Number.NaN;
  };
  const subscriber = (clientId: string) => new Subscriber({ ...visitor, clientId }, filters, read);
  const [named, keyed] = [await makeDevice('named'), await makeDevice('keyed')];
  const probeTopic = `${topicRoot}/${api.accountId}/d/${await makeDevice('probe')}/temperature`;
  const ofTemplate = [JobSender, StationWriter, Claimer, Commander, Updater].map(
    (Kind) => new Kind(api, deviceTemplate.id),
  );
  const writers = [new Renamer(api, named), new Maker(api), new Rekeyer(api, keyed), ...ofTemplate];
  return { sources, present: subscriber('present'), absent: subscriber('absent'), writers, visitor, probeTopic };
}
