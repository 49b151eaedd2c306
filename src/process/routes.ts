/** Every endpoint, by what it asks of its caller. The order is that of the OpenAPI document. */

import { movingRoutes } from '../../cells/moves/live/routes.ts';
import { cellRoutes } from '../../cells/routes.ts';
import { bridgeRoutes } from '../bridges/routes.ts';
import { certificateAuthorityRoutes } from '../certificates/authorities.ts';
import { certificateRoutes } from '../certificates/certificates.ts';
import { crlRoutes } from '../certificates/crl-route.ts';
import { crlUploadRoutes } from '../certificates/crl-upload.ts';
import { issuerRoutes } from '../certificates/issuer-routes.ts';
import { commandRoutes } from '../commands/command-routes.ts';
import { estRenewalRoutes, estRoutes } from '../enrollment/exchange/est.ts';
import { enrollmentPermissionRoutes, enrollRoutes } from '../enrollment/exchange/routes.ts';
import { enrolledDeviceRoutes } from '../enrollment/groups/device-routes.ts';
import { enrollmentGroupRoutes } from '../enrollment/groups/groups.ts';
import { enrollmentRefusalRoutes } from '../enrollment/groups/refusal-routes.ts';
import { renewRoutes } from '../enrollment/renewal/renew-route.ts';
import { idempotentPosts } from '../entity/idempotency.ts';
import { bulkRoutes } from '../factory/jobs/bulk-routes.ts';
import { bulkCommandRoutes } from '../factory/jobs/command-routes.ts';
import { jobRoutes } from '../factory/jobs/routes.ts';
import { addressRoutes, provisioningRoutes } from '../factory/provisioning/routes.ts';
import { verificationRoutes } from '../factory/verification.ts';
import { firmwareContentRoutes, firmwareDeviceRoutes } from '../firmware/delivery/http.ts';
import { firmwareFileRoutes } from '../firmware/packages/package-files.ts';
import { firmwarePackageRoutes } from '../firmware/packages/packages.ts';
import { deviceFirmwareRoutes } from '../firmware/rollouts/device-routes.ts';
import { firmwareRolloutRoutes } from '../firmware/rollouts/rollout-routes.ts';
import { consoleRoutes } from '../http/answers/console.ts';
import { pageRoutes } from '../http/answers/pages.ts';
import type { App } from '../http/app.ts';
import { batchRoutes } from '../http/batch.ts';
import { keepReserve } from '../http/guards/disk-reserve.ts';
import { healthRoutes } from '../http/health.ts';
import type { Traffic } from '../http/traffic.ts';
import { applicationRoutes } from '../identity/applications.ts';
import { emailAddressRoutes, emailConfirmationRoutes } from '../identity/email-address.ts';
import { identityProviderRoutes } from '../identity/federation/providers.ts';
import { federationRoutes } from '../identity/federation/routes.ts';
import { meRoutes } from '../identity/me.ts';
import { mfaLoginRoutes } from '../identity/mfa/login.ts';
import { mfaRoutes } from '../identity/mfa/routes.ts';
import { profileRoutes } from '../identity/profile.ts';
import { scimPath, scimRoutes } from '../identity/scim/routes.ts';
import { scimTokenRoutes } from '../identity/scim/token.ts';
import { passwordChangeRoutes, passwordResetRoutes } from '../identity/secrets/password-reset.ts';
import { securityRoutes } from '../identity/security.ts';
import { requireAppToken, requireCaller } from '../identity/sessions/authentication.ts';
import { loginRoutes } from '../identity/sessions/login.ts';
import { keyRoutes, sessionRoutes, validationRoutes } from '../identity/sessions/routes.ts';
import { signInRoutes } from '../identity/sign-in.ts';
import { tokenRoutes } from '../identity/token-routes.ts';
import { registrationRoutes, userRoutes } from '../identity/users.ts';
import { logRoutes } from '../messages/logs/routes.ts';
import { publishing, publishingAtRoot } from '../messages/publish.ts';
import { retentionRoutes } from '../messages/retention.ts';
import { timeSeriesRoutes } from '../messages/series/routes.ts';
import { seriesWriting } from '../messages/series/writing.ts';
import { streamRoutes } from '../messages/stream.ts';
import { usageRoutes } from '../messages/usage.ts';
import { auditRoutes } from '../operations/audit/index.ts';
import { metricsRoutes } from '../operations/metrics/index.ts';
import { overviewRoutes } from '../operations/overview/routes.ts';
import { accountUserRoutes } from '../registry/account-users.ts';
import { brandingRoutes, publicBrandingRoutes } from '../registry/branding.ts';
import { channelTemplateRoutes } from '../registry/channel-templates.ts';
import { associationRoutes } from '../registry/credentials/association.ts';
import { credentialRoutes } from '../registry/credentials/credentials.ts';
import { giveAwayRoutes } from '../registry/credentials/give-away.ts';
import { replacementRoutes } from '../registry/credentials/replacement.ts';
import { signUpRoutes } from '../registry/credentials/sign-up.ts';
import { customFieldRoutes } from '../registry/custom-fields.ts';
import { connectivityRoutes } from '../registry/devices/connectivity.ts';
import { deviceRoutes } from '../registry/devices/devices.ts';
import { accountRefusalRoutes, refusalRoutes } from '../registry/devices/refusals.ts';
import { endUserRoutes } from '../registry/end-users.ts';
import { fleetRoutes } from '../registry/fleets.ts';
import { fleetsOfDeviceRoutes } from '../registry/fleets-of-device.ts';
import { organizationRoutes } from '../registry/organizations.ts';
import { permissionRoutes } from '../registry/permissions.ts';
import { roleRoutes } from '../registry/roles.ts';
import { searchRoutes } from '../registry/search.ts';
import { templateRoutes } from '../registry/templates.ts';
import type { Context } from './context.ts';

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
  crlRoutes,
  publicBrandingRoutes,
  signUpRoutes,
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
  searchRoutes,
  deviceRoutes,
  fleetRoutes,
  fleetsOfDeviceRoutes,
  connectivityRoutes,
  endUserRoutes,
  organizationRoutes,
  templateRoutes,
  channelTemplateRoutes,
  customFieldRoutes,
  accountUserRoutes,
  roleRoutes,
  tokenRoutes,
  credentialRoutes,
  enrollmentGroupRoutes,
  enrollmentRefusalRoutes,
  enrolledDeviceRoutes,
  enrollmentPermissionRoutes,
  certificateRoutes,
  certificateAuthorityRoutes,
  issuerRoutes,
  associationRoutes,
  giveAwayRoutes,
  brandingRoutes,
  addressRoutes,
  batchRoutes,
  logRoutes,
  streamRoutes,
  retentionRoutes,
  usageRoutes,
  refusalRoutes,
  accountRefusalRoutes,
  overviewRoutes,
  permissionRoutes,
  applicationRoutes,
  identityProviderRoutes,
  scimTokenRoutes,
  bridgeRoutes,
  replacementRoutes,
  verificationRoutes,
  mfaRoutes,
  securityRoutes,
  auditRoutes,
  jobRoutes,
  provisioningRoutes,
  bulkRoutes,
  bulkCommandRoutes,
  firmwarePackageRoutes,
  firmwareRolloutRoutes,
  deviceFirmwareRoutes,
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
  // Devices that have nothing but the proof of their group.
  await scope('/api/v1', [enrollRoutes]);
  await scope('/api/v1', [renewRoutes]);
  await scope('', [estRoutes]);
  await scope('', [estRenewalRoutes]);
  await scope(scimPath, [keepReserve, scimRoutes]);
  await scope('/api/v4', [requireCaller, timeSeriesRoutes]);
  await scope('/api/v1', [requireCaller, firmwareFileRoutes]);
  await scope('/api/v1', [requireCaller, crlUploadRoutes]);
  // The hooks of these depend on the endpoint: a device, or a password instead of a token, may call some of them.
  await scope('/api/v1', [firmwareDeviceRoutes]);
  await scope('/api/v1', [firmwareContentRoutes]);
  await scope('/api/v4', [seriesWriting]);
  await scope('/api/v1', [publishing]);
  await scope('', [publishingAtRoot]);
}
