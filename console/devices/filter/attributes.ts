/** The attributes of devices that a form offers, and how each is compared. The service knows more: they can be typed. */
import { texts } from '../../texts.ts';
import { type FormOperator, isSame, type Term } from './text.ts';

const words = texts.filters;

export type Kind = 'text' | 'version' | 'number' | 'date' | 'flag' | 'state' | 'update' | 'product' | 'place' | 'below';

export interface Attribute {
  names: readonly string[];
  label: string;
  kind: Kind;
  /** By which name a list of devices gives its values. */
  listed?: string;
}

const compared = ['gt', 'ge', 'lt', 'le'] as const;
const choice = ['eq', 'ne', 'pr', 'none'] as const;
const ordered = ['eq', 'ne', ...compared, 'pr', 'none'] as const;
export const operators: Readonly<Record<Kind, readonly FormOperator[]>> = {
  text: ['eq', 'ne', 'co', 'sw', 'ew', ...compared, 'pr', 'none'],
  version: ['eq', 'ne', 'lt', 'le', 'gt', 'ge', 'co', 'sw', 'ew', 'pr', 'none'],
  number: ordered,
  date: ordered,
  flag: choice,
  state: choice,
  update: choice,
  product: choice,
  place: choice,
  below: ['eq'],
};

/** Those that are no texts. */
const kinds: Readonly<Record<string, Kind>> = {
  ...{ within: 'below', organizationId: 'place', deviceTemplateId: 'product', provisioningState: 'state' },
  ...{ connected: 'flag', silent: 'flag', firmwareVersion: 'version', deviceVersion: 'version' },
  ...{ lastConnected: 'date', offlineSince: 'date', created: 'date', lastModified: 'date', purchaseDate: 'date' },
  ...{ latitude: 'number', longitude: 'number', 'firmware.state': 'update', 'certificate.expires': 'date' },
};
const listed = ['serialNumber', 'name', 'firmwareVersion', 'deviceVersion', 'location'];
/** Those that not everybody may read, and the right. */
const rights: Readonly<Record<string, string>> = {
  ...{ within: 'organization', organizationId: 'organization', organization: 'organization' },
  ...{ certificate: 'mqttCertificate', firmware: 'firmwareState', enrollmentGroupId: 'enrollmentGroup' },
  ...{ deviceTemplateId: 'deviceTemplate', template: 'deviceTemplate' },
};

/** Those that devices have in every account, for who may read these kinds. */
export function builtIn(mayRead: (kind: string) => boolean): Attribute[] {
  return Object.entries(words.attributes).flatMap(([path, label]) => {
    const names = path.split('.');
    const right = rights[names[0] ?? ''];
    const kind = kinds[path] ?? 'text';
    if (right !== undefined && !mayRead(right)) return [];
    return [{ names, label, kind, ...(listed.includes(path) && { listed: path }) }];
  });
}

const typed: Readonly<Record<string, Kind>> = {
  ...{ boolean: 'flag', int: 'number', float: 'number', lat: 'number', long: 'number', datetime: 'date' },
};

/** A custom field of devices. */
export const ofField = (name: string, fieldType: string): Attribute => ({
  ...{ names: ['fields', name], label: name, kind: typed[fieldType] ?? 'text', listed: name },
});

/** What a term compares: one that is offered, or as its value says. */
export function attributeOf({ names, value }: Pick<Term, 'names' | 'value'>, known: readonly Attribute[]): Attribute {
  const label = names.slice(names[0]?.toLowerCase() === 'fields' ? 1 : 0).join('.');
  const isTime = /^(-?P(\d+[WD]|T\d)|\d{4}-\d\d-\d\d)/.test(String(value));
  const kind = typeof value === 'number' ? 'number' : typeof value === 'boolean' ? 'flag' : isTime ? 'date' : 'text';
  return known.find((one) => isSame(one.names, names)) ?? { names, label, kind };
}

export const operatorText = (kind: Kind, operator: FormOperator): string =>
  words.operatorsOf[kind]?.[operator] ?? words.operators[operator];
