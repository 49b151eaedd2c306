/** Every endpoint, by what it asks of its caller. The order is that of the OpenAPI document. */
import { auditRoutes } from '../audit/index.js';
import { bridgeRoutes } from '../bridges/routes.js';
import type { Context } from '../context.js';
import { commandRoutes } from '../downlink/commands/command-routes.js';
import { firmwareFileRoutes } from '../downlink/packages/package-files.js';
import { firmwarePackageRoutes } from '../downlink/packages/packages.js';
import { firmwareRolloutRoutes } from '../downlink/rollouts/rollout-routes.js';
import { firmwareContentRoutes, firmwareDeviceRoutes } from '../downlink/ways/http.js';
import { bulkRoutes } from '../factory/jobs/bulk-routes.js';
import { jobRoutes } from '../factory/jobs/routes.js';
import { addressRoutes, provisioningRoutes } from '../factory/provisioning/routes.js';
import { verificationRoutes } from '../factory/verification.js';
import { applicationRoutes } from '../identity/applications.js';
import { emailAddressRoutes, emailConfirmationRoutes } from '../identity/email-address.js';
import { identityProviderRoutes } from '../identity/federation/providers.js';
import { federationRoutes } from '../identity/federation/routes.js';
import { meRoutes } from '../identity/me.js';
import { mfaLoginRoutes } from '../identity/mfa/login.js';
import { mfaRoutes } from '../identity/mfa/routes.js';
import { profileRoutes } from '../identity/profile.js';
import { passwordChangeRoutes, passwordResetRoutes } from '../identity/secrets/password-reset.js';
import { securityRoutes } from '../identity/security.js';
import { requireAppToken, requireCaller } from '../identity/sessions/authentication.js';
import { loginRoutes } from '../identity/sessions/login.js';
import { keyRoutes, sessionRoutes, validationRoutes } from '../identity/sessions/routes.js';
import { signInRoutes } from '../identity/sign-in.js';
import { registrationRoutes, userRoutes } from '../identity/users.js';
import { logRoutes } from '../messages/logs/routes.js';
import { publishing, publishingAtRoot } from '../messages/publish.js';
import { retentionRoutes } from '../messages/retention.js';
import { timeSeriesRoutes } from '../messages/series/routes.js';
import { seriesWriting } from '../messages/series/writing.js';
import { streamRoutes } from '../messages/stream.js';
import { usageRoutes } from '../messages/usage.js';
import { metricsRoutes } from '../metrics/index.js';
import type { Traffic } from '../metrics/traffic.js';
import { movingRoutes } from '../moving/routes.js';
import { accountUserRoutes } from '../registry/account-users.js';
import { certificateAuthorityRoutes } from '../registry/certificates/authorities.js';
import { certificateRoutes } from '../registry/certificates/certificates.js';
import { channelTemplateRoutes } from '../registry/channel-templates.js';
import { associationRoutes } from '../registry/credentials/association.js';
import { credentialRoutes } from '../registry/credentials/credentials.js';
import { replacementRoutes } from '../registry/credentials/replacement.js';
import { customFieldRoutes } from '../registry/custom-fields.js';
import { connectivityRoutes } from '../registry/devices/connectivity.js';
import { deviceRoutes } from '../registry/devices/devices.js';
import { refusalRoutes } from '../registry/devices/refusals.js';
import { endUserRoutes } from '../registry/end-users.js';
import { organizationRoutes } from '../registry/organizations.js';
import { permissionRoutes } from '../registry/permissions.js';
import { templateRoutes } from '../registry/templates.js';
import { consoleRoutes } from './answers/console.js';
import { pageRoutes } from './answers/pages.js';
import type { App } from './app.js';
import { batchRoutes } from './batch.js';
import { cellRoutes } from './cell.js';
import { keepReserve } from './guards/disk-reserve.js';
import { healthRoutes } from './health.js';
import { idempotentPosts } from './idempotency.js';

type Mount = (app: App, ctx: Context) => void;

/** They log somebody in, or take a token of their own. */
const withoutCaller: readonly Mount[] = [
  loginRoutes,
  mfaLoginRoutes,
  validationRoutes,
  federationRoutes,
  signInRoutes,
  passwordChangeRoutes,
  emailConfirmationRoutes,
];

/** They need the appToken of an application. */
const forApplications: readonly Mount[] = [passwordResetRoutes, registrationRoutes];

/** They need a caller who is logged in. */
const forCallers: readonly Mount[] = [
  sessionRoutes,
  profileRoutes,
  meRoutes,
  emailAddressRoutes,
  userRoutes,
  deviceRoutes,
  connectivityRoutes,
  endUserRoutes,
  organizationRoutes,
  templateRoutes,
  channelTemplateRoutes,
  customFieldRoutes,
  accountUserRoutes,
  credentialRoutes,
  certificateRoutes,
  certificateAuthorityRoutes,
  associationRoutes,
  addressRoutes,
  batchRoutes,
  logRoutes,
  streamRoutes,
  retentionRoutes,
  usageRoutes,
  refusalRoutes,
  permissionRoutes,
  applicationRoutes,
  identityProviderRoutes,
  bridgeRoutes,
  replacementRoutes,
  verificationRoutes,
  mfaRoutes,
  securityRoutes,
  auditRoutes,
  jobRoutes,
  provisioningRoutes,
  bulkRoutes,
  firmwarePackageRoutes,
  firmwareRolloutRoutes,
  commandRoutes,
];

/** Mounts all of them. What a group asks of its callers is a hook of its scope. */
export async function mountRoutes(app: App, ctx: Context, traffic: Traffic): Promise<void> {
  const scope = (prefix: string, mounts: readonly Mount[]) =>
    app.register(
      async (within) => {
        for (const mount of mounts) mount(within as App, ctx);
      },
      { prefix },
    );

  keyRoutes(app, ctx);
  metricsRoutes(app, ctx, traffic);
  healthRoutes(app, ctx);
  cellRoutes(app, ctx);
  movingRoutes(app, ctx);
  pageRoutes(app);
  await consoleRoutes(app);
  await scope('/api/v1', withoutCaller);
  await scope('/api/v1', [requireAppToken, idempotentPosts, keepReserve, ...forApplications]);
  await scope('/api/v1', [requireCaller, idempotentPosts, keepReserve, ...forCallers]);
  await scope('/api/v4', [requireCaller, timeSeriesRoutes]);
  await scope('/api/v1', [requireCaller, firmwareFileRoutes]);
  // The hooks of these depend on the endpoint: a device, or a password instead of a token, may call some of them.
  await scope('/api/v1', [firmwareDeviceRoutes]);
  await scope('/api/v1', [firmwareContentRoutes]);
  await scope('/api/v4', [seriesWriting]);
  await scope('/api/v1', [publishing]);
  await scope('', [publishingAtRoot]);
}
