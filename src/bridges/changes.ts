/** Bridges are made, changed and deleted, each with an audit record. */
import type { Static } from 'typebox';
import { bridgeColumns } from '../../db/registry/records/bridges.ts';
import type { Audit } from '../audit/index.ts';
import type { Caller } from '../caller.ts';
import { readChanges, readNew } from '../entity/columns.ts';
import { demandHas } from '../entity/giving.ts';
import { noteAnswer } from '../entity/kept-answers.ts';
import { etagOf } from '../entity/routes.ts';
import { change, demandLive, insert, stamp, trash, writeAs } from '../entity/verbs.ts';
import { invalid } from '../errors.ts';
import { makeSecret } from '../identity/secrets/secrets.ts';
import { type createBody, showBridge, type updateBody, urlOf } from './bridge.ts';
import type { BridgesContext } from './context.ts';
import { kindOf } from './kinds.ts';
import { missingLibraries } from './libraries.ts';
import { type BridgeRow, secretOwner, urlOwner } from './opening.ts';
import type { Form } from './target.ts';
import { type Asked, checkAsked, readSettings } from './wanted.ts';

type Needed = Pick<BridgesContext, 'audit' | 'bridges' | 'clock' | 'config' | 'registry' | 'sealing'>;

/** Each gets every message: more of them multiply what is stored. */
export const maxPerAccount = 5;

/** @throws PlatformError 400/106 for what the target cannot be opened with or a missing library, and for one bridge too many. */
export async function createBridge(ctx: Needed, caller: Caller, body: Static<typeof createBody>) {
  const { accountId, kind, form = 'json', settings = {} } = body;
  const secret = kind === 'webhook' ? (body.secret ?? makeSecret()) : undefined;
  const { secret: given, ...others } = body;
  demandOwnSecret(kind, given === null ? others : body);
  const credentials = secret === undefined ? (body.credentials ?? {}) : { secret };
  checkAsked({ kind, url: body.url, form, settings, credentials }, ctx.config.bridges);
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
      ...readNew(bridgeColumns, body),
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
  ctx: Needed,
  caller: Caller,
  found: BridgeRow,
  version: number,
  body: Static<typeof updateBody>,
) {
  const { url, form, settings } = body;
  const before = demandLive(found);
  const { id } = before;
  const kind = before.kind as Asked['kind'];
  demandOwnSecret(kind, body);
  const made = body.secret === null ? makeSecret() : undefined;
  const secret = body.secret ?? made;
  const sealed = secret ?? (body.credentials && JSON.stringify(body.credentials));
  const asked = {
    kind,
    url: url ?? urlOf(ctx, before),
    form: form ?? (before.form as Form),
    settings: settings ?? readSettings(before),
    credentials: body.credentials ?? {},
  };
  checkAsked(asked, ctx.config.bridges);
  if (sealed === undefined) demandSameServer(ctx, before, asked);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, { device: ['subscribe'] });
    const changed = await change(
      tx,
      'bridges',
      id,
      version,
      { caller, clock: ctx.clock },
      {
        ...readChanges(bridgeColumns, body),
        ...(url !== undefined && { sealedUrl: ctx.sealing.seal(urlOwner(id), url) }),
        ...(sealed !== undefined && { sealedSecret: ctx.sealing.seal(secretOwner(id), sealed) }),
      },
    );
    await recordChange(ctx, tx, caller, changed, { change: 'updated', secretChanged: sealed !== undefined });
    return changed;
  });
  ctx.bridges.changed(row);
  return { ...showBridge(ctx, row), ...(made !== undefined && { secret: made }) };
}

/**
 * Stored credentials go only where they were meant for: otherwise a caller who may change a bridge could send them to a server
 * of their own. A webhook's secret is never sent.
 * @throws PlatformError 400/106 when `url` or `settings.brokers` names another server and the bridge has credentials.
 */
function demandSameServer(ctx: Needed, before: BridgeRow, { kind, url, settings }: Asked): void {
  if (kind === 'webhook' || before.sealedSecret === null) return;
  const [now, then] = [new URL(url), new URL(urlOf(ctx, before))];
  const same = now.protocol === then.protocol && now.host === then.host;
  if (same && settings.brokers === readSettings(before).brokers) return;
  if (ctx.sealing.open(secretOwner(before.id), before.sealedSecret) === '{}') return;
  throw invalid('credentials', 'must be given again when the bridge leads to another server');
}

/** A webhook has its secret, all others have credentials. @throws PlatformError 400/106 for the other one. */
function demandOwnSecret(kind: string, { secret, credentials }: Static<typeof updateBody>): void {
  if (kind === 'webhook' && credentials) throw invalid('credentials', 'is not for webhooks; use secret');
  if (kind !== 'webhook' && secret !== undefined) throw invalid('secret', 'is for webhooks only; use credentials');
}

/** Nothing recovers a bridge, so its secret goes at once. @throws PlatformError as trash. */
export async function deleteBridge(ctx: Needed, caller: Caller, id: string, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'bridges', id, version, ctx.clock);
    await tx.updateTable('bridges').set({ sealedSecret: null }).where('id', '=', id).execute();
    await recordChange(ctx, tx, caller, trashed, { change: 'deleted' });
    return { ...trashed, sealedSecret: null };
  });
  ctx.bridges.changed(row);
  return showBridge(ctx, row);
}

/** Notes in the audit record what was done to a bridge. */
export function recordChange(
  ctx: Needed,
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
