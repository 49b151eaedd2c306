/** Checks the settings of a bridge before they are stored. */
import type { BridgeKind } from '../../db/registry/records/bridges.ts';
import { cleanPem } from '../certificates/x509.ts';
import { invalid } from '../core/errors.ts';
import { namesPrivateAddress } from '../core/network/outbound.ts';
import { kindOf } from './kinds.ts';
import type { BridgeRow } from './opening.ts';
import type { Form, TargetKind } from './target.ts';

export interface AskedBridge {
  kind: BridgeKind;
  url: string;
  form: Form;
  settings: Record<string, string>;
  credentials: Record<string, string>;
  ca: string | null;
}

/** @throws PlatformError 400/106 naming the property that the kind of target cannot have. */
export function checkAsked(asked: AskedBridge, { allowPrivate }: { allowPrivate: boolean }): void {
  const kind = kindOf(asked.kind);
  checkUrl(asked.url, kind, allowPrivate);
  if (asked.ca !== null && kind.plain.includes(new URL(asked.url).protocol))
    throw invalid('ca', `is only for addresses with ${kind.secure.map((scheme) => scheme.slice(0, -1)).join(' or ')}`);
  if (!kind.forms.includes(asked.form)) throw invalid('form', `must be ${kind.forms.join(' or ')} for ${asked.kind}`);
  for (const [name, value] of Object.entries(asked.settings)) {
    const known = Object.hasOwn(kind.settings, name) ? kind.settings[name] : undefined;
    const names = Object.keys(kind.settings).join(', ') || 'none';
    if (!known) throw invalid(`settings.${name}`, `is not a setting of ${asked.kind}; its settings: ${names}`);
    if (!known.pattern.test(value)) throw invalid(`settings.${name}`, `must be ${known.form}`);
  }
  for (const [name, { required, form }] of Object.entries(kind.settings))
    if (required && asked.settings[name] === undefined)
      throw invalid(`settings.${name}`, `is required for ${asked.kind}: ${form}`);
  for (const name of Object.keys(asked.credentials))
    if (!kind.credentials.includes(name))
      throw invalid(
        `credentials.${name}`,
        `is not a credential of ${asked.kind}; its credentials: ${kind.credentials.join(', ')}`,
      );
}

/** A name is looked up, and its addresses are checked, when it is connected to. */
function checkUrl(text: string, { secure, plain }: TargetKind, allowPrivate: boolean): void {
  const schemes = [...secure, ...(allowPrivate ? plain : [])];
  const names = schemes.map((scheme) => scheme.slice(0, -1)).join(' or ');
  const url = /^[a-z]+:\/\/[!-~]+$/i.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  if (!url || url.hostname === '' || ![...secure, ...plain].includes(url.protocol))
    throw invalid('url', `must be an address with ${names}`);
  if (!schemes.includes(url.protocol))
    throw invalid(
      'url',
      `must be an address with ${names}; only SLIPWAY_ALLOW_PRIVATE_TARGETS=true allows ${url.protocol.slice(0, -1)}`,
    );
  if (url.username !== '' || url.password !== '' || url.hash !== '')
    throw invalid('url', 'must have no user, no password and no fragment');
  if (!allowPrivate && namesPrivateAddress(url))
    throw invalid('url', 'must not name a private address; only SLIPWAY_ALLOW_PRIVATE_TARGETS=true allows it');
}

/** The certificates of a PEM text, without what stands around them. @throws PlatformError 400/106 for a text without any, and for a private key. */
export function readCa(text: string | null): string | null {
  if (text === null) return null;
  if (text.includes('PRIVATE KEY')) throw invalid('ca', 'holds a private key, which no bridge needs');
  const pem = cleanPem(text);
  if (pem === undefined) throw invalid('ca', 'must be one or more certificates in PEM form');
  return pem;
}

export function readSettings({ settings }: Pick<BridgeRow, 'settings'>): Record<string, string> {
  return JSON.parse(settings);
}
