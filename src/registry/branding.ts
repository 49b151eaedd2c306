/** What an account's customers see when they claim a device: its name, colour and logo, and whether they may sign up. */

import { type Static, Type } from 'typebox';
import { Nullable } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { invalid, PlatformError, unknownAccount } from '../core/errors.ts';
import { writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import type { RegistryContext } from './context.ts';
import { maxLogoBytes, readLogo } from './logo.ts';

const tags = ['Association'];
/** Characters of a logo as it is sent; what is longer than it may be, and shorter than this, answers 413. */
const maxSentLogo = 16_000_000;

const name = Type.String({ minLength: 1, maxLength: 100 });
const color = Type.String({ pattern: '^#[0-9a-fA-F]{6}$', description: 'Six hexadecimal digits after #.' });
const logoSays = `A data URL of an SVG or a PNG of at most ${maxLogoBytes} bytes.`;
const brandingBody = Type.Object(
  {
    name: Type.Optional(Nullable(name)),
    color: Type.Optional(Nullable(color)),
    logo: Type.Optional(Nullable(Type.String({ maxLength: maxSentLogo, description: logoSays }))),
  },
  { description: 'What is left out stays; null is none.' },
);
const brandingShape = Type.Object(
  {
    branding: Type.Object({
      name: Type.String({ description: 'The name of the account where it has no other.' }),
      color: Nullable(color),
      logo: Nullable(Type.String({ description: `${logoSays} An SVG only draws: it has no script and no address.` })),
    }),
  },
  { description: 'How the pages look that customers of the account see.' },
);
const claiming = Type.Object({
  signUp: Type.Boolean({ description: 'Whether anyone who holds an unclaimed device may sign up with its code.' }),
  customersMayRemove: Type.Boolean({
    description: 'Whether the people of an organization may take its devices out of it, which then belong to nobody.',
  }),
});
const claimingBody = Type.Partial(claiming, { description: 'What is left out stays.' });
const claimingShape = Type.Object({ claiming }, { description: 'How devices of the account are claimed.' });

/** Reads what the account has chosen. @throws PlatformError 404/100. */
async function readBranding({ registry }: RegistryContext, accountId: string): Promise<Static<typeof brandingShape>> {
  const row = await registry.query
    .selectFrom('accounts')
    .leftJoin('brandings', 'brandings.accountId', 'accounts.id')
    .select(['accounts.name as accountName', 'brandings.name', 'brandings.color', 'brandings.logo'])
    .where('accounts.id', '=', accountId)
    .executeTakeFirst();
  if (!row) throw unknownAccount();
  return { branding: { name: row.name ?? row.accountName, color: row.color, logo: row.logo } };
}

/** Endpoints that need no token: a page shows it before anybody has logged in. */
export function publicBrandingRoutes(app: App, ctx: RegistryContext): void {
  app.get(
    '/account/branding',
    {
      config: { errors: ['notFound'] },
      schema: {
        tags,
        operationId: 'getBranding',
        summary: 'Read the name, colour and logo of an account',
        description: 'The claim page shows them before anybody has logged in.',
        security: [],
        querystring: Type.Object({ accountId: Type.String({ maxLength: 255 }) }),
        response: { 200: brandingShape },
      },
    },
    ({ query }) => readBranding(ctx, query.accountId),
  );
}

/** Endpoints of admins. */
export function brandingRoutes(app: App, ctx: RegistryContext): void {
  const { registry } = ctx;
  const readClaiming = async ({ accountId }: Caller) => {
    const accounts = registry.query.selectFrom('accounts').select(['signUp', 'customersMayRemove']);
    const { signUp, customersMayRemove } = await accounts.where('id', '=', accountId).executeTakeFirstOrThrow();
    return { claiming: { signUp: signUp === 1, customersMayRemove: customersMayRemove === 1 } };
  };
  app.put(
    '/account/branding',
    {
      config: { right: ['update', 'account'], errors: ['forbidden'] },
      schema: {
        tags,
        operationId: 'updateBranding',
        summary: 'Change the name, colour and logo of the account',
        description: 'An SVG is kept without what does not draw.',
        body: brandingBody,
        response: { 200: brandingShape },
      },
    },
    async ({ caller, body }) => {
      await writeBranding(ctx, caller, body);
      return readBranding(ctx, caller.accountId);
    },
  );
  app.get(
    '/account/claiming',
    {
      config: { right: ['read', 'account'], errors: ['forbidden'] },
      schema: {
        tags,
        operationId: 'getClaiming',
        summary: 'Read whether people may sign up with the code of a device, and remove devices',
        description: 'They may unless an admin has switched it off.',
        response: { 200: claimingShape },
      },
    },
    ({ caller }) => readClaiming(caller),
  );
  app.put(
    '/account/claiming',
    {
      config: { whenFull: true, right: ['update', 'account'], errors: ['forbidden'] },
      schema: {
        tags,
        operationId: 'updateClaiming',
        summary: 'Change whether people may sign up with the code of a device, and remove devices',
        description: 'People who have a login claim devices, and give theirs away, in either case.',
        body: claimingBody,
        response: { 200: claimingShape },
      },
    },
    async ({ caller, body }) => {
      const { accountId } = caller;
      const given = Object.entries(body).filter(([name]) => Object.hasOwn(claiming.properties, name));
      const changes = Object.fromEntries(given.map(([name, value]) => [name, value ? 1 : 0]));
      await writeAs(ctx, caller, undefined, async (tx) => {
        if (given.length === 0) return;
        await tx.updateTable('accounts').set(changes).where('id', '=', accountId).execute();
        const target = { kind: 'account', id: accountId } as const;
        const changed = { event: 'claimingChanged', outcome: 'success', accountId, actor: caller, target } as const;
        await ctx.audit.record(tx, { ...changed, details: Object.fromEntries(given) });
      });
      return readClaiming(caller);
    },
  );
}

/** The logo as it is kept. @throws PlatformError 400/106 for one that is no picture, 413 for one that is too large. */
function checkLogo(given: string): string {
  const read = readLogo(given);
  if (read === 'tooLarge')
    throw new PlatformError('tooLarge', { message: `The logo has more than ${maxLogoBytes} bytes.` });
  if ('problem' in read) throw invalid('logo', read.problem);
  return read.logo;
}

/** @throws PlatformError as checkLogo. */
async function writeBranding(ctx: RegistryContext, caller: Caller, body: Static<typeof brandingBody>): Promise<void> {
  const { accountId } = caller;
  const { name, color, logo } = body;
  const changes = {
    ...(name !== undefined && { name }),
    ...(color !== undefined && { color }),
    ...(logo !== undefined && { logo: logo === null ? null : checkLogo(logo) }),
  };
  await writeAs(ctx, caller, undefined, async (tx) => {
    await tx
      .insertInto('brandings')
      .values({ accountId, name: null, color: null, logo: null, ...changes })
      .onConflict((conflict) => conflict.column('accountId').doUpdateSet({ accountId, ...changes }))
      .execute();
    const target = { kind: 'account', id: accountId } as const;
    const details = { changed: Object.keys(changes).join(', ') };
    await ctx.audit.record(tx, {
      ...{ event: 'brandingChanged', outcome: 'success', accountId, actor: caller, target, details },
    });
  });
}
