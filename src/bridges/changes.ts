/** Bridges are made, changed and deleted, each with an audit record. */
import type { Static } from 'typebox';
import { bridgeColumns } from '../../db/registry/records/bridges.ts';
import type { Caller } from '../core/caller.ts';
import { invalid } from '../core/errors.ts';
import { readChanges, readNew } from '../entity/columns.ts';
import { demandHas } from '../entity/giving.ts';
import { noteAnswer } from '../entity/kept-answers.ts';
import { etagOf } from '../entity/routes.ts';
import { change, demandLive, insert, stamp, trash, writeAs } from '../entity/verbs.ts';
import { makeSecret } from '../identity/secrets/secrets.ts';
import type { Audit } from '../operations/audit/index.ts';
import { type createBody, showBridge, shownUrl, type updateBody, urlOf } from './bridge.ts';
import type { BridgesContext } from './context.ts';
import { openHeaders, readHeaders, sealHeaders } from './headers.ts';
import { kindOf } from './kinds.ts';
import { missingLibraries } from './libraries.ts';
import { type BridgeRow, secretOwner, urlOwner } from './opening.ts';
import type { Form } from './target.ts';
import { type AskedBridge, checkAsked, readCa, readSettings } from './wanted.ts';

type BridgeChangeServices = Pick<BridgesContext, 'audit' | 'bridges' | 'clock' | 'config' | 'registry' | 'sealing'>;

/** Each gets every message: more of them multiply what is stored. */
export const maxPerAccount = 5;

/** @throws PlatformError 400/106 for what the target cannot be opened with or a missing library, and for one bridge too many. */
export async function createBridge(ctx: BridgeChangeServices, caller: Caller, body: Static<typeof createBody>) {
  const { accountId, kind, form = 'json', settings = {} } = body;
  const secret = kind === 'webhook' ? (body.secret ?? makeSecret()) : undefined;
  const { secret: given, ...others } = body;
  demandOwnSecret(kind, given === null ? others : body);
  const headers = readHeaders(body.headers ?? [], [], ctx.config.headerPrefix);
  const ca = readCa(body.ca ?? null);
  const credentials = secret === undefined ? (body.credentials ?? {}) : { secret };
  checkAsked({ kind, url: body.url, form, settings, credentials, ca }, ctx.config.bridges);
  const missing = missingLibraries(kindOf(kind));
  if (missing) throw invalid('kind', missing);
  const stamped = stamp(ctx.clock, caller);
  const { row, bridge } = await writeAs(ctx, caller, undefined, async (tx) => {
    // Its target hears every message.
    await demandHas(tx, caller, { device: ['subscribe'] });
    const others = tx.selectFrom('bridges').select('id').where('accountId', '=', accountId);
    const live = await others.where('deleted', 'is', null).execute();
    if (live.length >= maxPerAccount) throw invalid('accountId', `has ${maxPerAccount} bridges, which is the maximum`);
    const made = await insert(tx, 'bridges', {
      ...stamped,
      ...readNew(bridgeColumns, { ...body, ca }),
      sealedHeaders: sealHeaders(ctx.sealing, stamped.id, headers),
      sealedUrl: ctx.sealing.seal(urlOwner(stamped.id), body.url),
      sealedSecret: ctx.sealing.seal(secretOwner(stamped.id), secret ?? JSON.stringify(credentials)),
    });
    await recordChange(ctx, tx, caller, made, { change: 'created' });
    const shown = { ...showBridge(ctx, made), ...(secret !== undefined && !body.secret && { secret }) };
    await noteAnswer(tx, { bridge: shown }, { etag: etagOf(shown) });
    return { row: made, bridge: shown };
  });
  ctx.bridges.changed(row);
  return bridge;
}

/** @throws PlatformError as change, and 400/106 as createBridge. */
export async function updateBridge(
  ctx: BridgeChangeServices,
  caller: Caller,
  found: BridgeRow,
  version: number,
  body: Static<typeof updateBody>,
) {
  const { form, settings } = body;
  const before = demandLive(found);
  const storedUrl = urlOf(ctx, before);
  const url = body.url === shownUrl(storedUrl) ? storedUrl : body.url;
  const { id } = before;
  const kind = before.kind as AskedBridge['kind'];
  demandOwnSecret(kind, body);
  const made = body.secret === null ? makeSecret() : undefined;
  const secret = body.secret ?? made;
  const sealed = secret ?? (body.credentials && JSON.stringify(body.credentials));
  const headers = body.headers && readHeaders(body.headers, openHeaders(ctx.sealing, before), ctx.config.headerPrefix);
  const ca = body.ca === undefined ? before.ca : readCa(body.ca);
  const asked = {
    kind,
    url: url ?? storedUrl,
    form: form ?? (before.form as Form),
    settings: settings ?? readSettings(before),
    credentials: body.credentials ?? {},
    ca,
  };
  checkAsked(asked, ctx.config.bridges);
  demandSameServer(ctx, before, asked, body);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, { device: ['subscribe'] });
    const changed = await change(
      tx,
      'bridges',
      id,
      version,
      { caller, clock: ctx.clock },
      {
        ...readChanges(bridgeColumns, { ...body, ca }),
        ...(headers && { sealedHeaders: sealHeaders(ctx.sealing, id, headers) }),
        ...(url !== undefined && { sealedUrl: ctx.sealing.seal(urlOwner(id), url) }),
        ...(sealed !== undefined && { sealedSecret: ctx.sealing.seal(secretOwner(id), sealed) }),
      },
    );
    const secretChanged = sealed !== undefined || (body.headers ?? []).some(({ value }) => value !== undefined);
    await recordChange(ctx, tx, caller, changed, { change: 'updated', secretChanged });
    return changed;
  });
  ctx.bridges.changed(row);
  return { ...showBridge(ctx, row), ...(made !== undefined && { secret: made }) };
}

/**
 * What is sealed goes only where it was meant for. @throws PlatformError 400/106 when `url`, `settings.brokers` or `ca` lets another
 * server be the target and something is kept. A webhook's secret is never sent.
 */
function demandSameServer(
  ctx: BridgeChangeServices,
  before: BridgeRow,
  asked: AskedBridge,
  body: Static<typeof updateBody>,
): void {
  const storedUrl = urlOf(ctx, before);
  const [now, then] = [new URL(asked.url), new URL(storedUrl)];
  const same = now.protocol === then.protocol && now.host === then.host && asked.ca === before.ca;
  if (same && asked.settings.brokers === readSettings(before).brokers) return;
  const headers = body.headers ?? openHeaders(ctx.sealing, before).map(({ name }) => ({ name }));
  const isKept = headers.some((header) => !('value' in header));
  if (isKept) throw invalid('headers', 'must be given again, with values, when the bridge leads to another server');
  if (asked.url === storedUrl && body.url !== storedUrl && shownUrl(storedUrl) !== storedUrl)
    throw invalid('url', 'must be given again, with its query, when the bridge trusts another CA');
  if (asked.kind === 'webhook' || body.credentials || before.sealedSecret === null) return;
  if (ctx.sealing.open(secretOwner(before.id), before.sealedSecret) === '{}') return;
  throw invalid('credentials', 'must be given again when the bridge leads to another server');
}

/** A webhook has its secret and its headers, all others have credentials. @throws PlatformError 400/106 for the other one. */
function demandOwnSecret(kind: string, { secret, credentials, headers = [] }: Static<typeof updateBody>): void {
  if (kind === 'webhook' && credentials) throw invalid('credentials', 'is not for webhooks; use secret and headers');
  if (kind !== 'webhook' && secret !== undefined) throw invalid('secret', 'is for webhooks only; use credentials');
  if (kind !== 'webhook' && headers.length > 0) throw invalid('headers', 'is for webhooks only');
}

/** Nothing recovers a bridge, so its secrets go at once. @throws PlatformError as trash. */
export async function deleteBridge(ctx: BridgeChangeServices, caller: Caller, id: string, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'bridges', id, version, ctx.clock);
    const shown = ctx.sealing.seal(urlOwner(id), shownUrl(urlOf(ctx, trashed)));
    const none = { sealedSecret: null, sealedHeaders: null, sealedUrl: shown };
    await tx.updateTable('bridges').set(none).where('id', '=', id).execute();
    await recordChange(ctx, tx, caller, trashed, { change: 'deleted' });
    return { ...trashed, ...none };
  });
  ctx.bridges.changed(row);
  return showBridge(ctx, row);
}

/** Notes in the audit record what was done to a bridge. */
export function recordChange(
  ctx: BridgeChangeServices,
  tx: Parameters<Audit['record']>[0],
  caller: Caller,
  row: BridgeRow,
  what: Record<string, string | boolean>,
): Promise<void> {
  const { id, accountId } = row;
  // Only where it leads: the rest of the address may be a password in disguise.
  const details = { ...what, host: new URL(urlOf(ctx, row)).host };
  const target = { kind: 'bridge', id } as const;
  return ctx.audit.record(tx, {
    event: 'bridgeChanged',
    outcome: 'success',
    accountId,
    actor: caller,
    target,
    details,
  });
}
